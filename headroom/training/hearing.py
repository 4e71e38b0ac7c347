"""What a rank is told, as numbers that ranks can agree on, and what the first one says back."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from headroom.work.folder import Directives, JobStatus
from headroom.work.reading import write_plain

__all__ = ["NOTHING", "Channel", "Mailbox", "Told"]

#: Offered by a rank that has no say: any other number is greater.
_NO_SAY = -math.inf


class Told(NamedTuple):
    """What holds for the job now. Sequence numbers are those of directives; 0: none.

    ``paused``: of the pause in force. ``is_leaving``: save, and end. ``every``: steps until ranks
    look again.
    """

    seq: float = 0
    checkpoint: float = 0
    paused: float = 0
    batch_scale: float = 1.0
    #: infinite: none
    power_cap_w: float = math.inf
    every: float = 1
    is_leaving: float = 0

    @classmethod
    def of(cls, given: Directives, *, every: int, is_leaving: bool) -> Told:
        """Return what the directives in force come to."""
        return cls(
            seq=given.seq,
            checkpoint=given.checkpoint,
            paused=given.paused,
            batch_scale=given.batch_scale or 1.0,
            power_cap_w=math.inf if given.power_cap_w is None else given.power_cap_w,
            every=every,
            is_leaving=float(is_leaving),
        )

    def as_values(self, *, has_say: bool) -> Sequence[float]:
        """Return the numbers that a rank offers. The first has a say; all tell that they leave."""
        return self if has_say else (*(_NO_SAY for _ in self[1:]), self.is_leaving)

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Told:
        """Return what ranks have agreed on."""
        return cls(*values)


NOTHING = Told()


class Channel(Protocol):
    """How a job hears of the directives in force, and says what it has done."""

    def read(self) -> Directives:
        """Return the directives in force. It is called about once a second."""
        ...

    def say(
        self,
        *,
        done: int | None = None,
        step: int | None = None,
        checkpoint_at: float | None = None,
    ) -> None:
        """Say what was carried out, and at which step. What is left out stays as it was said."""
        ...


class Mailbox:
    """The two files by which the machine's agent and a job talk: see the executors' reference."""

    def __init__(self, directives: Path, status: Path) -> None:
        self._path, self._status_path = directives, status
        self._seen: tuple[int, int] | None = None
        self._directives = Directives()
        self._said = JobStatus(hears=True)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Mailbox | None:
        """Return that of this process; None where nobody would tell it anything."""
        told, status = (environment.get(f"HEADROOM_{name}") for name in ("DIRECTIVES", "STATUS"))
        return cls(Path(told), Path(status)) if told and status else None

    def read(self) -> Directives:
        """Return the directives in force. One look at the file where nothing has changed."""
        # There is none yet, or none that can be read: what was told last holds.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found = os.stat(self._path)  # noqa: PTH116 - each step does it
            mark = (found.st_ino, found.st_mtime_ns)
            if mark != self._seen:
                self._directives = msgspec.json.decode(self._path.read_bytes(), type=Directives)
                self._seen = mark
        return self._directives

    def say(
        self,
        *,
        done: int | None = None,
        step: int | None = None,
        checkpoint_at: float | None = None,
    ) -> None:
        """Say what was carried out, and at which step. What is left out stays as it was said.

        A disk that does not take it ends no training: the agent then hears it with the next.
        """
        said = {"done": done, "step": step, "checkpoint_at": checkpoint_at}
        given = {name: value for name, value in said.items() if value is not None}
        self._said = msgspec.structs.replace(self._said, **given)
        with contextlib.suppress(OSError):
            write_plain(self._status_path, msgspec.json.encode(self._said), 0o644)
