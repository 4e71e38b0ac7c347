"""Small files for what runs under slurmctld and in jobs: the hold's term, leases, directives.

``until``: job_submit.lua holds new jobs until that moment, Unix s, where the operator chose "open".
``news``: job_submit.lua adds a line to it with each job that it holds, so that the bridge looks.
``leases/ID``: PrologSlurmctld lets job ID start while its text is the number of starts before it.
All are written whole at once.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from headroom.schedulers.contract import Directives
from headroom.work.contract import MAX_OUTPUTS, Measured
from headroom.work.reading import read_plain, write_plain

__all__ = ["RunFiles", "Shared", "Status"]

#: What the news are cut at, bytes.
_LONGEST_NEWS = 65_536
#: The most that a job tells of its artifacts, bytes.
_MOST_BYTES = 65_536


class Status(msgspec.Struct):
    """What a job says of itself: its last checkpoint, and the last directive that it has done."""

    checkpoint_at: float | None = None
    done: int = 0


class _Made(msgspec.Struct):
    """The artifacts of a job, as :func:`headroom.work.outputs.measure` tells of them."""

    outputs: Annotated[list[Measured], msgspec.Meta(max_length=MAX_OUTPUTS)]


class RunFiles:
    """The folder that slurmctld's plugins read, on the machine of slurmctld."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._leases = folder, folder / "leases"
        self._news = folder / "news"
        self._leases.mkdir(mode=0o755, parents=True, exist_ok=True)

    def hold_until(self, at: float) -> None:
        """Have new jobs be held until ``at``, Unix s."""
        _write(self._folder / "until", f"{at:.0f}\n".encode())

    def leases(self, restarts: Mapping[str, int]) -> None:
        """Let exactly these jobs start, by Slurm's number, each after so many starts."""
        for path in self._leases.iterdir():
            if path.name not in restarts:
                path.unlink(missing_ok=True)
        for number, count in restarts.items():
            path, text = self._leases / number, f"{count}\n"
            if not path.exists() or path.read_text() != text:
                _write(path, text.encode())

    def news(self) -> tuple[int, int]:
        """Return what is another once job_submit.lua has held something since."""
        try:
            found = self._news.stat()
        except OSError:
            return 0, 0
        if found.st_size > _LONGEST_NEWS:
            with contextlib.suppress(OSError):
                os.truncate(self._news, 0)
        return found.st_mtime_ns, found.st_size

    def clear(self) -> None:
        """Have nothing be held from now on."""
        (self._folder / "until").unlink(missing_ok=True)
        self.leases({})


class Shared:
    """The folder that jobs see: their directives, and what they say of themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def direct(self, ref: str, directives: Directives) -> None:
        """Put the directives of a job where it finds them."""
        _write(self._folder / f"{ref}.json", msgspec.json.encode(directives))

    def status(self, ref: str) -> Status:
        """Return what a job says of itself; nothing where it says nothing that can be read."""
        path = self._folder / f"{ref}.status"
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if path.stat().st_size <= 4096:
                return msgspec.json.decode(path.read_bytes(), type=Status)
        return Status()

    def outputs(self, ref: str, user: str) -> list[Measured]:
        """Return the artifacts that a job has measured; none where its ``user`` has told of none.

        What another user has left under its name does not count.
        """
        with contextlib.suppress(OSError, KeyError, msgspec.MsgspecError):
            owner = pwd.getpwnam(user).pw_uid
            said = read_plain(self.outputs_file(ref), _MOST_BYTES, owner=owner)
            return msgspec.json.decode(said, type=_Made).outputs
        return []

    def outputs_file(self, ref: str) -> Path:
        """Return where a job tells of the artifacts that it has made."""
        return self._folder / f"{ref}.outputs"

    def forget(self, ref: str) -> None:
        """Drop the files of a job that is over."""
        for name in ("json", "status", "outputs"):
            path = self._folder / f"{ref}.{name}"
            with contextlib.suppress(OSError):
                path.unlink()


def _write(path: Path, text: bytes) -> None:
    write_plain(path, text, 0o644)
