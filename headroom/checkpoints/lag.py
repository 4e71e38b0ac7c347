"""How far another store is behind, and what is worth most to be sent next."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from headroom.checkpoints.manifest import Name
from headroom.checkpoints.store import Checkpoint, Store

__all__ = ["Lag", "behind", "lag", "next_to_ship"]


@dataclass(frozen=True)
class Lag:
    """How far a store is behind another with a run, by checkpoints that count.

    ``steps`` and ``seconds`` are what a resume there would lose of what a resume here would not:
    None where there is nothing to resume from. ``bytes`` is what the latest here has that none
    there has, before it is packed, ``checkpoints`` how many here are later than the latest there.
    """

    checkpoints: int
    steps: int | None
    seconds: float | None
    bytes: int


def behind(here: Iterable[Checkpoint], there: Iterable[Checkpoint]) -> Lag:
    """Return how far a store with the checkpoints ``there`` of a run is behind that of ``here``."""
    ours, theirs = sorted(here, key=_order), sorted(there, key=_order)
    if not ours:
        return Lag(0, 0, 0.0, 0)
    known = {digest for each in theirs for digest in each.manifest.chunks()}
    latest = ours[-1]
    lacking = sum(size for each, size in latest.manifest.chunks().items() if each not in known)
    later = [each for each in ours if not theirs or each.name > theirs[-1].name]
    if not theirs:
        return Lag(len(later), None, None, lacking)
    if not later:
        return Lag(0, 0, 0.0, 0)
    passed = latest.name.at - theirs[-1].name.at
    steps = latest.name.step - theirs[-1].name.step
    return Lag(len(later), max(0, steps), max(0.0, passed.total_seconds()), lacking)


def lag(store: Store, other: Store, run: str) -> Lag:
    """Return how far ``other`` is behind ``store`` with ``run``."""
    return behind(store.readable(run), other.readable(run))


def next_to_ship(here: Iterable[Checkpoint], there: Iterable[Name]) -> Checkpoint | None:
    """Return what is to be sent next to a store with ``there``, or None where nothing is.

    Where sending is slower than saving, not all can be sent. First come the latest of each run,
    those before others whose run would lose more time, and then what is kept for good. What was
    overtaken by a later one is not sent: nobody would resume from it.
    """
    known = set(there)
    ours = sorted(here, key=_order)
    latest_there = {name.run: name for name in sorted(known)}
    latest_here = {each.name.run: each for each in ours}
    waiting = [
        each
        for run, each in latest_here.items()
        if run not in latest_there or each.name > latest_there[run]
    ]
    if waiting:
        return max(waiting, key=lambda each: (_at_stake_s(each.name, latest_there), each.name))
    kept = [each for each in ours if each.manifest.about.keep and each.name not in known]
    return kept[-1] if kept else None


def _order(checkpoint: Checkpoint) -> Name:
    return checkpoint.name


def _at_stake_s(name: Name, there: dict[str, Name]) -> float:
    """Return how many seconds of the run would be lost at the other store as it is."""
    before = there.get(name.run)
    return math.inf if before is None else (name.at - before.at).total_seconds()
