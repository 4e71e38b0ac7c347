"""The ranks of a job, and how they come to act at the same step."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Alone", "Group", "current_group", "world_of"]


class Group(Protocol):
    """The ranks. All of them offer and take as often as each other, in turn."""

    rank: int
    world: int
    #: whether this rank is the first of those on its machine
    is_first_here: bool

    def offer(self, values: Sequence[float]) -> None:
        """Begin to find the greatest of each value over all ranks. Does not wait."""
        ...

    def take(self) -> Sequence[float]:
        """Return the greatest of each value that ranks offered last; waits for them."""
        ...

    def close(self) -> None:
        """Let go of what was offered and not taken. All ranks have offered it."""
        ...


class Alone:
    """One rank, which agrees with itself."""

    rank = 0
    world = 1
    is_first_here = True

    def __init__(self) -> None:
        self._offered: Sequence[float] = ()

    def offer(self, values: Sequence[float]) -> None:
        """Keep the values."""
        self._offered = values

    def take(self) -> Sequence[float]:
        """Return them."""
        return self._offered

    def close(self) -> None:
        """Nothing is left."""


def world_of(environment: dict[str, str] | os._Environ[str]) -> tuple[int, int]:
    """Return rank and number of ranks as launchers put them into the environment."""
    try:
        rank, world = int(environment.get("RANK", 0)), int(environment.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1
    return (rank, world) if 0 <= rank < world else (0, 1)


def current_group() -> Group | None:
    """Return the group of this process; None: others are there with which it cannot agree.

    PyTorch's, where the process has initialized one. It is not imported for that.
    """
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        # Only here is PyTorch known to be installed.
        from headroom.training.pytorch import TorchGroup

        return TorchGroup()
    return Alone() if world_of(os.environ)[1] == 1 else None
