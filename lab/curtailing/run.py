"""A world to which a grid says what it may draw, and what came of each event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.curtailment import Ask, Kept, baseline_of, kept
from lab.approaches.approaches import approach
from lab.approaches.comparison import policy_of
from lab.curtailing.events import (
    GPUS,
    GPUS_LONG,
    HOURS,
    WARM_S,
    Event,
    jobs_of,
    long_event,
    random_events,
    spans_held,
)
from lab.fleet import Fleet, make_even_fleet
from lab.traces.arrivals import arrivals
from lab.world import EPOCH_S, Record, World
from lab.world.gangs import Gang
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind

__all__ = ["Curtailed", "LongRun", "play_long", "play_random"]

#: Loads count at each step of the twin, s.
_STEP_S = 2.0
#: A job that does so much of its full speed while something is asked is not touched.
_UNTOUCHED = 0.98


@dataclass(frozen=True)
class Met:
    """What came of one event."""

    event: Event
    baseline_w: float
    target_w: float
    kept: Kept


@dataclass(frozen=True)
class Curtailed:
    """What came of the random events of one seed."""

    approach: str
    seed: int
    from_h: float
    met: list[Met]
    #: jobs of the highest class that ran while something was asked, and those of them that an
    #: event slowed, paused or ended
    highest: int
    touched: tuple[str, ...]
    record: Record = field(repr=False)

    @property
    def in_time(self) -> int:
        return sum(each.kept.is_in_time for each in self.met)

    @property
    def held(self) -> int:
        return sum(each.kept.verdict == "held" for each in self.met)

    @property
    def held_share(self) -> float:
        """The share of all seconds of all events in which the target was kept."""
        seconds = sum(each.kept.seconds for each in self.met)
        return sum(each.kept.held_s for each in self.met) / seconds if seconds else 1.0

    @property
    def worst_held_share(self) -> float:
        return min((each.kept.held_s / each.kept.seconds for each in self.met), default=1.0)

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "approach": self.approach,
            "seed": self.seed,
            "from_h": self.from_h,
            "events": len(self.met),
            "met_in_time": self.in_time,
            "held": self.held,
            "held_share": self.held_share,
            "worst_held_share": self.worst_held_share,
            "highest_class_jobs": self.highest,
            "highest_class_touched": len(self.touched),
            "over_budget_s": self.record.over_budget_s,
            "work_gpu_h": self.record.work_gpu_s / 3600.0,
            "each": [
                {
                    "announced_s": each.event.announced_s,
                    "start_s": each.event.start_s,
                    "end_s": each.event.end_s,
                    "by_share": each.event.by_share,
                    "baseline_w": each.baseline_w,
                    "target_w": each.target_w,
                    **each.kept.as_data(),
                }
                for each in self.met
            ],
        }


@dataclass(frozen=True)
class LongRun:
    """What came of the event of three hours, beside the same run without it."""

    approach: str
    seed: int
    from_h: float
    met: Met
    work_gpu_h: float
    work_without_gpu_h: float
    highest: int
    touched: tuple[str, ...]

    @property
    def work_left(self) -> float:
        """The work done while it was held, as a share of what was done without it."""
        return self.work_gpu_h / self.work_without_gpu_h if self.work_without_gpu_h else 1.0

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "approach": self.approach,
            "seed": self.seed,
            "from_h": self.from_h,
            "by_share": self.met.event.by_share,
            "baseline_w": self.met.baseline_w,
            "target_w": self.met.target_w,
            **self.met.kept.as_data(),
            "work_gpu_h": self.work_gpu_h,
            "work_without_gpu_h": self.work_without_gpu_h,
            "work_left": self.work_left,
            "highest_class_jobs": self.highest,
            "highest_class_touched": len(self.touched),
        }


class _Watched(World):
    """A world that notes at each step what its site draws, and who is touched by events."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.times: list[float] = []
        self.watts: list[float] = []
        self.work_gpu_s: list[float] = []
        #: of jobs of the highest class while something was asked: how long, how long at full
        #: speed, and those that were paused, shrunk or ended
        self.seconds: dict[str, float] = defaultdict(float)
        self.clocked_s: dict[str, float] = defaultdict(float)
        self.stopped: set[str] = set()

    def _step(self, dt_s: float) -> None:
        before = {gang.key: (gang, self.gangs.clocked_s(gang)) for gang in self._highest()}
        super()._step(dt_s)
        self.times.append(self.twin.now_s)
        self.watts.append(float(self.twin.rack_w.sum()))
        if self.in_force.of(RestrictionKind.POWER_BUDGET_W):
            self._look(before, dt_s)

    def _highest(self) -> list[Gang]:
        return [gang for gang in self.gangs if not gang.job.request.max_slowdown]

    def _look(self, before: Mapping[str, tuple[Gang, float]], dt_s: float) -> None:
        now = {gang.key: gang for gang in self._highest()}
        for key, gang in now.items():
            self.seconds[gang.job.key] += dt_s
            if key in before:
                self.clocked_s[gang.job.key] += self.gangs.clocked_s(gang) - before[key][1]
            else:
                self.clocked_s[gang.job.key] += dt_s  # it has just begun
            if gang.is_paused or gang.scale < 1.0 or gang.leaves_s is not None:
                self.stopped.add(gang.job.key)
        # What is gone and not done was ended.
        gone = [gang for key, (gang, _) in before.items() if key not in now]
        self.stopped |= {gang.job.key for gang in gone if gang.job.state == "queued"}

    @property
    def highest(self) -> int:
        """How many jobs of the highest class ran while something was asked."""
        return len(self.seconds)

    @property
    def touched(self) -> tuple[str, ...]:
        """Those of them that were paused, shrunk or ended, or slowed below :data:`_UNTOUCHED`."""
        slowed = {
            key
            for key, seconds in self.seconds.items()
            if self.clocked_s[key] < _UNTOUCHED * seconds
        }
        return tuple(sorted(slowed | self.stopped))

    def work_done_gpu_s(self) -> float:
        """Return the work done so far by all jobs, GPU·s."""
        return float(sum(self._outcome(job).work_gpu_s for job in self._jobs[: self._come]))


def play_random(
    trace: Path,
    name: str,
    *,
    seed: int,
    hours: float = HOURS,
    events: Sequence[Event] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Curtailed:
    """Play the random events of a seed under an approach, and return what came of them."""
    asked = list(events if events is not None else random_events(seed))
    end_s = WARM_S + hours * 3600.0
    from_h, world = _world(trace, name, seed=seed, hours=end_s / 3600.0, gpus=GPUS)
    met = []
    for number, event in enumerate(asked):
        world.run(event.announced_s, progress)
        met.append(_ask(world, event, asked[:number]))
    record = world.run(end_s, progress)
    return Curtailed(
        approach=name,
        seed=seed,
        from_h=from_h,
        met=[_met(world, event, baseline_w) for event, baseline_w in zip(asked, met, strict=True)],
        highest=world.highest,
        touched=world.touched,
        record=record,
    )


def play_long(
    trace: Path, name: str, *, seed: int, progress: Callable[[float], None] | None = None
) -> LongRun:
    """Play the event of three hours, and the same without it."""
    event = long_event()
    hours = event.end_s / 3600.0
    done = []
    for is_asked in (False, True):
        from_h, world = _world(trace, name, seed=seed, hours=hours, gpus=GPUS_LONG)
        world.run(event.announced_s, progress)
        baseline_w = _ask(world, event, ()) if is_asked else 0.0
        world.run(event.start_s, progress)
        before = world.work_done_gpu_s()
        world.run(event.end_s, progress)
        done.append((world.work_done_gpu_s() - before) / 3600.0)
    return LongRun(
        approach=name,
        seed=seed,
        from_h=from_h,
        met=_met(world, event, baseline_w),
        work_gpu_h=done[1],
        work_without_gpu_h=done[0],
        highest=world.highest,
        touched=world.touched,
    )


def _world(trace: Path, name: str, *, seed: int, hours: float, gpus: int) -> tuple[float, _Watched]:
    from_h, jobs = jobs_of(trace, hours=hours, gpus=gpus)
    policy = policy_of(approach(name))
    return from_h, _Watched(_fleet(gpus), arrivals(jobs, seed=seed), policy, seed=seed)


def _fleet(gpus: int) -> Fleet:
    return make_even_fleet(gpus=gpus, sites=1, power_share=1.0, feed_share=1.2, cooling_share=1.2)


def _ask(world: _Watched, event: Event, earlier: Sequence[Event]) -> float:
    """Have the grid ask for an event now; return its baseline, W."""
    found = baseline_of(
        np.array(world.times),
        np.array(world.watts),
        until=world.twin.now_s,
        every_s=_STEP_S,
        without=spans_held(earlier),
    )
    if found is None:
        raise ValueError("there is not enough of a load to compare with")
    target_w = Ask(by_share=event.by_share).target_w(found.watts)
    starts_at, ends_at = (_at(second) for second in (event.start_s, event.end_s))
    name = str(world._inventory.sites.names[0])
    world.restrict(
        Wanted(
            RestrictionKind.POWER_BUDGET_W, Scope(ScopeKind.SITE, name), target_w,
            "the grid asks for it", "user:grid", f"event-{event.announced_s:.0f}", ends_at,
            starts_at=starts_at,
        )
    )  # fmt: skip
    return found.watts


def _met(world: _Watched, event: Event, baseline_w: float) -> Met:
    target_w = Ask(by_share=event.by_share).target_w(baseline_w)
    times, watts = np.array(world.times), np.array(world.watts)
    return Met(event, baseline_w, target_w, _kept(times, watts, event, target_w, baseline_w))


def _kept(
    times: NDArray[np.float64],
    watts: NDArray[np.float64],
    event: Event,
    target_w: float,
    baseline_w: float,
) -> Kept:
    # Steps are even seconds: an event counts from the first that begins within it.
    start = _STEP_S * math.ceil(event.start_s / _STEP_S)
    end = _STEP_S * math.floor(event.end_s / _STEP_S)
    return kept(
        times, watts, target_w=target_w, baseline_w=baseline_w, start=start, end=end,
        every_s=_STEP_S,
    )  # fmt: skip


def _at(second: float) -> datetime:
    return datetime.fromtimestamp(EPOCH_S + second, UTC)
