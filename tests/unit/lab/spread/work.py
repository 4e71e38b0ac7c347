"""Small work for tests."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from lab.spread import Part, Work


@dataclass(frozen=True)
class Asked:
    """A number, and a file to add the length of."""

    number: int
    file: Path | None = None


@dataclass(frozen=True)
class Told:
    doubled: float
    process: int


def _double(asked: Asked) -> Told:
    if asked.number < 0:
        raise ValueError(f"{asked.number} is negative")
    time.sleep(0.02)
    length = len(asked.file.read_bytes()) if asked.file else 0
    return Told(2.0 * asked.number + length, os.getpid())


def _die(asked: Asked) -> Told:
    os.kill(os.getpid(), 9)
    raise AssertionError


@dataclass(frozen=True)
class OfFolder:
    part: Part


def _names(asked: OfFolder) -> list[str]:
    folder = asked.part.folder
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.txt"))


DOUBLE = Work(f"{__name__}:DOUBLE", _double, Asked, Told)
DIE = Work(f"{__name__}:DIE", _die, Asked, Told)
NAMES = Work(f"{__name__}:NAMES", _names, OfFolder, list[str])
