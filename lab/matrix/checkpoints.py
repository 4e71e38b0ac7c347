"""The checkpoint files of a command: their digests, and whether these match their sidecars."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SIDECAR", "Checkpoints", "look"]

#: Beside a checkpoint: what its SHA-256 is to be, as ``sha256sum`` writes it.
SIDECAR = ".sha256"
_DRAFTS = (".tmp", ".draft", ".partial")


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
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.endswith((SIDECAR, *_DRAFTS)):
            continue
        name = str(path.relative_to(folder))
        digests[name] = _digest(path)
        sidecar = path.with_name(path.name + SIDECAR)
        if sidecar.is_file():
            told += 1
            words = sidecar.read_text(errors="replace").split()
            if not words or words[0] != digests[name]:
                corrupt.append(name)
    return Checkpoints(digests, told, tuple(corrupt))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
