"""What jobs of a window are told of their starts, and how far that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.cycle.calibration import Calibration, Estimate
from admission.core.cycle.decide import Decisions
from admission.core.cycle.ends import Like, Ran, RunRecord
from admission.core.cycle.estimates import estimates
from bench.backfill_waits import TICK_S, arrivals_of, past_of, world_of
from bench.backfill_windows import Window
from tests.builders.queue_world import NOW, Arrival, World

__all__ = ["Told", "baselines", "judged", "pinball_s", "play"]

Floats = NDArray[np.float64]

_LEVELS = (0.1, 0.5, 0.9)
#: The least GPUs of each class of sizes, and its name.
_CLASSES = {1: "1", 2: "2-7", 8: "8-15", 16: "16+"}
#: A class of fewer jobs that waited says nothing.
_LEAST_JOBS = 20
_HISTORY = 256


@dataclass(frozen=True, eq=False)
class Told:
    """The jobs of a window that waited, in the order in which they were told.

    When that was (s), in how many s after it they started, and ``ranges``: 10, 50 and 90 %, s.
    """

    at_s: Floats
    waited_s: Floats
    gpus: Floats
    ranges: Floats


class _Teller:
    """Tells those who begin to wait, and notes when they start."""

    def __init__(self) -> None:
        self.calibration = Calibration()
        self.open: dict[str, tuple[float, Estimate]] = {}
        self.done: dict[str, tuple[float, Estimate, float]] = {}

    def look(self, world: World, decisions: Decisions) -> None:
        starts = []
        for key in (each.request.key for each in decisions.admitted):
            if key in self.open:
                at, given = self.open.pop(key)
                self.done[key] = at, given, world.now - at
                starts.append((given, at, world.now - at))
        self.calibration = self.calibration.learn(starts)
        new = [key for key in decisions.waiting if key not in self.open]
        if new:
            told = [(given.drawn, at) for at, given in self.open.values()]
            calibration = self.calibration.beside(told, world.now)
            found = estimates(decisions, world.ended, calibration)
            self.open |= {key: (world.now, found[key]) for key in new if key in found}


def play(window: Window, *, blind: bool = False, seed: int | None = None) -> Told:
    """Return what the jobs of a window are told that came in it and had to wait.

    ``seed``: they run as drawn from what is known of those before them, and not as they did.
    """
    world, teller = world_of(window), _Teller()
    world.ended.extend(past_of(window, blind=blind))
    arrivals = arrivals_of(window, blind=blind)
    if seed is not None:
        arrivals = _running_as_drawn(arrivals, world.ended, seed)
    for decisions in world.play(arrivals, cycle_s=TICK_S, until_all_began=True):
        teller.look(world, decisions)
    came = {
        each.request.key
        for each, is_new in zip(arrivals, window.came.tolist(), strict=True)
        if is_new
    }
    gpus = {each.request.key: each.request.gpus for each in arrivals}
    done = {key: each for key, each in teller.done.items() if key in came}
    order = sorted(done, key=lambda key: (done[key][0], key))
    ranges = [(given.p10_s, given.p50_s, given.p90_s) for _, given, _ in done.values()]
    by_key = dict(zip(done, ranges, strict=True))
    return Told(
        at_s=np.array([done[key][0] - NOW for key in order]),
        waited_s=np.array([done[key][2] for key in order]),
        gpus=np.array([gpus[key] for key in order], dtype=np.float64),
        ranges=np.array([by_key[key] for key in order]).reshape(-1, len(_LEVELS)),
    )


def _running_as_drawn(
    arrivals: Sequence[Arrival], ended: Sequence[Ran], seed: int
) -> list[Arrival]:
    likes = [Like(one.project, "", one.gpus, one.walltime_s)
             for one in (each.request for each in arrivals)]  # fmt: skip
    rng, began = np.random.default_rng(seed), np.zeros(len(arrivals))
    shares = RunRecord(ended).draw(likes, began, rng, 1)[0].tolist()
    return [
        replace(each, runs_s=max(share * each.request.walltime_s, 1.0))
        for each, share in zip(arrivals, shares, strict=True)
    ]


def judged(window: Window, *, blind: bool = False, seed: int | None = None) -> dict[str, Any]:
    """Return the figures of a window, as JSON; ``blind`` and ``seed`` as for :func:`play`."""
    told = play(window, blind=blind, seed=seed)
    low, _, high = told.ranges.T
    within = (low <= told.waited_s) & (told.waited_s <= high)
    loss_s = pinball_s(told.ranges, told.waited_s)
    losses_s = {name: pinball_s(each, told.waited_s) for name, each in baselines(told).items()}
    return {
        "window": window.name,
        "gpus": window.gpus,
        "jobs": int(window.came.sum()),
        "told": len(told.waited_s),
        "coverage": float(within.mean()),
        "below": float((told.waited_s < low).mean()),
        "classes": {
            name: {
                "told": int(of.sum()),
                "counts": bool(of.sum() >= _LEAST_JOBS),
                "coverage": float(within[of].mean()) if of.any() else None,
            }
            for name, of in _by_class(told.gpus).items()
        },
        "width": float(np.median(np.maximum(high, TICK_S) / np.maximum(low, TICK_S))),
        "loss_s": loss_s,
        "baselines": losses_s,
        "loss_ratio": loss_s / min(losses_s.values()),
        "knowable_loss_ratio": loss_s
        / min(each for name, each in losses_s.items() if name != "constant"),
    }


def _by_class(gpus: Floats) -> dict[str, NDArray[np.bool_]]:
    number = np.searchsorted(list(_CLASSES), gpus, side="right") - 1
    return {name: number == place for place, name in enumerate(_CLASSES.values())}


def pinball_s(ranges: Floats, waited_s: Floats) -> float:
    """Return the mean pinball loss, s, over all levels."""
    over, levels = waited_s[:, None] - ranges, np.array(_LEVELS)
    return float(np.maximum(levels * over, (levels - 1.0) * over).mean())


def baselines(told: Told) -> dict[str, Floats]:
    """Return the ranges of trivial methods for the same jobs, s, by name: jobs by levels."""
    everybody = np.quantile(told.waited_s, _LEVELS)
    all_of_them = np.ones(len(told.gpus), dtype=np.bool_)
    of_class, by_class = np.zeros_like(told.ranges), _by_class(told.gpus)
    for of in by_class.values():
        of_class[of] = _history(told, of)[of]
    return {
        "now": np.zeros_like(told.ranges),
        "history": _history(told, all_of_them),
        "by_class": of_class,
        "constant": np.broadcast_to(everybody, told.ranges.shape),
    }


def _history(told: Told, of: NDArray[np.bool_]) -> Floats:
    """Return for each job the quantiles of the last waits that were over when it was told."""
    over_at = (told.at_s + told.waited_s)[of]
    order = np.argsort(over_at, kind="stable")
    ends, waits = over_at[order], told.waited_s[of][order]
    found = np.zeros_like(told.ranges)
    for row, upto in enumerate(np.searchsorted(ends, told.at_s, side="right").tolist()):
        if upto:
            found[row] = np.quantile(waits[max(upto - _HISTORY, 0) : upto], _LEVELS)
    return found
