"""What is killed when: drawn from a seed, so that a run that fails can be run again."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

VICTIMS = ("agent", "web", "worker", "beat", "valkey", "postgres")
_SHORTEST_GAP_S = 0.3


class How(enum.StrEnum):
    """What is done to a victim."""

    #: SIGKILL to all that the service started with, at once.
    ALL = "all"
    #: SIGKILL to one of its processes, its parent or a child, drawn.
    ONE = "one"
    #: Redis only: FLUSHALL.
    FLUSH = "flush"
    #: Redis only: SIGKILL, with its files removed, as when its disk is lost.
    LOSE_DISK = "lose disk"


WIPES = (How.FLUSH, How.LOSE_DISK)


@dataclass(frozen=True)
class Blow:
    """One fault. ``draw`` (0 to 1) picks among the processes that there are at the moment."""

    at_s: float
    victim: str
    how: How
    draw: float


def make_schedule(seed: int, *, duration_s: float, blows: int, wipes: Sequence[How]) -> list[Blow]:
    """Return at least ``blows`` kills and all of ``wipes`` within ``duration_s``, in order of time.

    Each victim is hit about equally often, and each at least once where ``blows`` allows it; the
    times are drawn, so that two may come within a moment and one may meet what is still starting.
    A wipe comes in the first half: what it took is only sent again after a while.
    """
    draw = random.Random(seed)
    victims = _dealt(draw)
    times = _times(draw, duration_s, blows)
    found = [Blow(at_s, next(victims), _how(draw), draw.random()) for at_s in times]
    for how in wipes:
        at_s = draw.uniform(0.1, 0.5) * duration_s
        found.append(Blow(at_s, "valkey", how, draw.random()))
    return sorted(found, key=lambda blow: blow.at_s)


def _how(draw: random.Random) -> How:
    return How.ALL if draw.random() < 0.5 else How.ONE


def _dealt(draw: random.Random) -> Iterator[str]:
    """Yield victims for ever, as from a pack of cards that is shuffled when it is through."""
    while True:
        yield from draw.sample(VICTIMS, len(VICTIMS))


def _times(draw: random.Random, duration_s: float, count: int) -> list[float]:
    """Return ``count`` times as a Poisson process has them, but for the shortest gap."""
    spare_s = duration_s - count * _SHORTEST_GAP_S
    if spare_s < 0:
        raise ValueError(f"{count} blows do not fit into {duration_s} s")
    at_s = sorted(draw.uniform(0.0, spare_s) for _ in range(count))
    return [at + place * _SHORTEST_GAP_S for place, at in enumerate(at_s)]
