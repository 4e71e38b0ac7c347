"""The checkpoint files of a command: their digests, and whether these match their sidecars."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SIDECAR", "Checkpoints", "FirstOne", "look"]

#: Beside a checkpoint: what its SHA-256 is to be, as ``sha256sum`` writes it.
SIDECAR = ".sha256"
_DRAFTS = (".tmp", ".draft", ".partial")
#: What has stayed as it is for so long is taken for whole, where nothing beside it says so, s.
_STILL_S = 0.5


@dataclass(frozen=True)
class Checkpoints:
    """The whole files of a folder. ``corrupt``: those whose digest differs from their sidecar."""

    digests: dict[str, str]
    told: int
    corrupt: tuple[str, ...]

    def differing(self, other: Checkpoints) -> list[str]:
        """Return the names of files that both have and that differ, or that one has alone."""
        names = sorted(self.digests.keys() | other.digests.keys())
        return [name for name in names if self.digests.get(name) != other.digests.get(name)]

    def and_(self, other: Checkpoints, place: str) -> Checkpoints:
        """Return these and the files of another place, whose names begin with its name."""
        return Checkpoints(
            self.digests | {f"{place}/{name}": digest for name, digest in other.digests.items()},
            self.told + other.told,
            (*self.corrupt, *(f"{place}/{name}" for name in other.corrupt)),
        )


def look(folder: Path) -> Checkpoints:
    """Return the checkpoints in and below a folder. Drafts (``.tmp`` and the like) do not count."""
    digests, corrupt, told = {}, [], 0
    for path in sorted(_files(folder)):
        name = str(path.relative_to(folder))
        digests[name] = _digest(path)
        sidecar = path.with_name(path.name + SIDECAR)
        if sidecar.is_file():
            told += 1
            words = sidecar.read_text(errors="replace").split()
            if not words or words[0] != digests[name]:
                corrupt.append(name)
    return Checkpoints(digests, told, tuple(corrupt))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that count as checkpoints."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.endswith((SIDECAR, *_DRAFTS)):
            yield path


class FirstOne:
    """Whether a command that runs has written a whole checkpoint yet."""

    def __init__(self, *, is_signed: bool) -> None:
        """``is_signed``: a whole one has its sidecar beside it. Else whole is what stays so."""
        self._is_signed = is_signed
        self._is_there = False
        #: size and time of writing of each file, and since when it has had them, s
        self._seen: dict[Path, tuple[tuple[int, int], float]] = {}

    def is_there(self, folders: Sequence[Path], now_s: float) -> bool:
        """Look for one in and below the folders, at a monotonic time. One that was seen stays."""
        self._is_there = self._is_there or any(
            self._is_whole(path, now_s) for folder in folders for path in _files(folder)
        )
        return self._is_there

    def _is_whole(self, path: Path, now_s: float) -> bool:
        if self._is_signed:
            return path.with_name(path.name + SIDECAR).is_file()
        # It may be renamed or removed while it is looked at.
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            mark = (found.st_size, found.st_mtime_ns)
            before, since_s = self._seen.get(path, (None, now_s))
            since_s = since_s if mark == before else now_s
            self._seen[path] = (mark, since_s)
            return now_s - since_s >= _STILL_S
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
