"""What a command is told over the files of ``headroom.training``, and what it says came of it.

The same files by which a machine's agent and a job talk: docs/reference/executors.md. Each thing
that was told is a line of a ledger, which lies beside the run's steps.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from headroom.work.contract import SignalKind, SignalOrder
from headroom.work.folder import Directives, JobStatus
from headroom.work.reading import write_plain

__all__ = ["TOO_LATE", "Channel", "Line"]

#: So long a command may take to do what it is told: as jobs may, to stand still.
_HEARS_WITHIN_S = 15.0
TOO_LATE = "the command was over before it could hear of it"


@dataclass
class Line:
    """One thing that the command was told. Times are monotonic s; at the end, s of the run.

    ``seq`` 0: it is no directive of the file. ``done_s``: when the command was seen to have done
    it; None: never. ``step`` is the step of its training after which it did.
    """

    kind: str
    value: float | None
    told_s: float
    seq: int = 0
    done_s: float | None = None
    step: int | None = None
    #: it was not done, and the command was over too soon for that to mean anything
    was_late: bool = False

    def is_done_at(self, step: int | None) -> None:
        """Note that it is done, now."""
        self.done_s, self.step = time.monotonic(), step


class Channel:
    """The files of one run, over all starts of its command."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "directives.json"
        self._status_path = folder / "status.json"
        self._ledger_path = folder / "ledger.jsonl"
        self._told = Directives()
        self._is_closed = False
        self.lines: list[Line] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a command finds the files."""
        return {
            "HEADROOM_DIRECTIVES": str(self._path),
            "HEADROOM_STATUS": str(self._status_path),
        }

    @property
    def is_heard(self) -> bool:
        """Whether the command reads what it is told."""
        return self._status().hears

    def begin(self) -> None:
        """Have the next start of the command find what is in force, and nothing that is over."""
        self._status_path.unlink(missing_ok=True)
        self._told.checkpoint = 0
        if self._told.seq:
            self._write()

    def tell(self, kind: SignalKind, value: float | None = None) -> Line:
        """Tell the command of a directive. Once it is over for good, nothing is told any more."""
        line = Line(str(kind), value, time.monotonic())
        if not self._is_closed:
            line.seq = self._told.seq + 1
            self._told.take(SignalOrder(seq=line.seq, kind=kind, value=value))
            self._write()
            self.lines.append(line)
        return line

    def ask_to_end(self) -> Line:
        """Return the line of a stop, which is told by a signal."""
        line = Line(str(SignalKind.STOP), None, time.monotonic())
        self.lines.append(line)
        return line

    def has_lasted(self, line: Line, seconds: float) -> bool:
        """Say whether a line was done so long ago; or was not done in all this time."""
        if line.done_s is None:
            return not self.is_late(line)
        return time.monotonic() - line.done_s >= seconds

    def is_late(self, line: Line) -> bool:
        """Say whether a line was told so lately that the command need not have done it."""
        if self._is_closed:
            return line.was_late
        return line.done_s is None and time.monotonic() - line.told_s < _HEARS_WITHIN_S

    def look(self) -> None:
        """Note what the command says that it has done."""
        waiting = [line for line in self.lines if line.seq and line.done_s is None]
        if not waiting:
            return
        status = self._status()
        for line in waiting:
            if line.seq <= status.done:
                line.is_done_at(status.step)

    def close(self, zero_s: float) -> None:
        """Write the ledger, with times of the run, which began at ``zero_s``."""
        self.look()
        for line in self.lines:
            line.was_late = self.is_late(line)
            line.told_s -= zero_s
            line.done_s = None if line.done_s is None else line.done_s - zero_s
        self._is_closed = True
        lines = "".join(json.dumps(asdict(line)) + "\n" for line in self.lines)
        self._ledger_path.write_text(lines)

    def _write(self) -> None:
        write_plain(self._path, msgspec.json.encode(self._told), 0o644)

    def _status(self) -> JobStatus:
        # There is none yet, or what the command wrote is none.
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return msgspec.json.decode(self._status_path.read_bytes(), type=JobStatus)
        return JobStatus()
