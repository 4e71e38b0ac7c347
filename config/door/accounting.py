"""Bounds on open requests, a budget of bytes that bodies hold, and the pace of bodies.

Pure: nobody is asked here for the time or for a setting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["Bound", "Budget", "One", "Pace", "TooMany", "TooMuch"]


class TooMany(Exception):
    """A bound is reached. ``in_all``: that of all together, not that of the key."""

    def __init__(self, *, in_all: bool) -> None:
        super().__init__(in_all)
        self.in_all = in_all


class TooMuch(Exception):
    """The budget has no room for so many bytes."""


class Bound:
    """At most ``each`` at once by key, and ``in_all`` together."""

    def __init__(self, each: int, in_all: int) -> None:
        self._each = each
        self._in_all = in_all
        self._open: Counter[Hashable] = Counter()
        self.open = 0

    def one(self, key: Hashable) -> One:
        """Count one open request of ``key`` during the block. Raises :class:`TooMany` before it."""
        return One(self, key)

    def of(self, key: Hashable) -> int:
        """Return how many of ``key`` are open."""
        return self._open[key]

    def enter(self, key: Hashable) -> None:
        """Count one more of ``key``. Raises :class:`TooMany`."""
        # One's own bound first: who reaches it is told so, whatever others do.
        if self._open[key] >= self._each:
            raise TooMany(in_all=False)
        if self.open >= self._in_all:
            raise TooMany(in_all=True)
        self._open[key] += 1
        self.open += 1

    def leave(self, key: Hashable) -> None:
        """Count one less of ``key``."""
        self.open -= 1
        self._open[key] -= 1
        if not self._open[key]:
            # Addresses are without number.
            del self._open[key]


class One:
    """One open request during a block: of a class, since a generator costs a request dearly."""

    __slots__ = ("_bound", "_key")

    def __init__(self, bound: Bound, key: Hashable) -> None:
        self._bound = bound
        self._key = key

    def __enter__(self) -> None:
        self._bound.enter(self._key)

    def __exit__(self, *_error: object) -> None:
        self._bound.leave(self._key)


class Budget:
    """Bytes that all bodies together may hold."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.held_bytes = 0

    def share(self) -> Share:
        """Return a share that grows during the block, and is given back after it."""
        return Share(self)

    def give_back(self, size: int) -> None:
        """Have room again for ``size`` bytes that were taken."""
        self.held_bytes -= size

    def take(self, size: int) -> None:
        """Raise :class:`TooMuch` where there is no room for ``size`` more bytes."""
        if self.held_bytes + size > self._most_bytes:
            raise TooMuch
        self.held_bytes += size


class Share:
    """The bytes that one request holds of a budget, to the end of a block."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.give_back(self.held_bytes)

    def grow(self, size: int) -> None:
        """Hold ``size`` more bytes. Raises :class:`TooMuch`, and then holds as much as before."""
        self._budget.take(size)
        self.held_bytes += size


@dataclass(frozen=True)
class Pace:
    """How slowly a body may come: ``least_bytes_per_s`` after ``grace_s``, and for no longer than
    ``longest_s`` in all."""

    grace_s: float
    least_bytes_per_s: float
    longest_s: float

    def allowed_s(self, received_bytes: int) -> float:
        """Return the time since its start by which more than ``received_bytes`` must be there."""
        return min(self.longest_s, self.grace_s + received_bytes / self.least_bytes_per_s)
