"""Small files for what runs under slurmctld and in jobs: the hold's term, leases, directives.

``until``: job_submit.lua holds new jobs until that moment, Unix s, where the operator chose "open".
``leases/ID``: PrologSlurmctld lets job ID start while its text is the number of starts before it.
All are written whole at once.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headroom.schedulers.contract import Directives

__all__ = ["RunFiles", "Shared", "Status"]


class Status(msgspec.Struct):
    """What a job says of itself: its last checkpoint, and the last directive that it has done."""

    checkpoint_at: float | None = None
    done: int = 0


class RunFiles:
    """The folder that slurmctld's plugins read, on the machine of slurmctld."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._leases = folder, folder / "leases"
        self._leases.mkdir(mode=0o755, parents=True, exist_ok=True)

    def hold_until(self, at: float) -> None:
        """Have new jobs be held until ``at``, Unix s."""
        _write(self._folder / "until", f"{at:.0f}\n")

    def leases(self, restarts: Mapping[str, int]) -> None:
        """Let exactly these jobs start, by Slurm's number, each after so many starts."""
        for path in self._leases.iterdir():
            if path.name not in restarts:
                path.unlink(missing_ok=True)
        for number, count in restarts.items():
            path, text = self._leases / number, f"{count}\n"
            if not path.exists() or path.read_text() != text:
                _write(path, text)

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
        _write(self._folder / f"{ref}.json", msgspec.json.encode(directives).decode())

    def status(self, ref: str) -> Status:
        """Return what a job says of itself; nothing where it says nothing that can be read."""
        path = self._folder / f"{ref}.status"
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if path.stat().st_size <= 4096:
                return msgspec.json.decode(path.read_bytes(), type=Status)
        return Status()

    def forget(self, ref: str) -> None:
        """Drop the files of a job that is over."""
        for path in (self._folder / f"{ref}.json", self._folder / f"{ref}.status"):
            with contextlib.suppress(OSError):
                path.unlink()


def _write(path: Path, text: str) -> None:
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    made.write_text(text)
    made.chmod(0o644)
    made.replace(path)
