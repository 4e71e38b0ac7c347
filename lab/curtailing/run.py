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
from lab.curtailing.ceiling import Moment, least_w, most_work
from lab.curtailing.events import (
    GPUS,
    GPUS_LONG,
    HOURS,
    WARM_S,
    Event,
    busy_jobs_of,
    jobs_of,
    long_event,
    random_events,
    spans_held,
)
from lab.fleet import Fleet, make_even_fleet
from lab.traces import JobTrace
from lab.traces.arrivals import arrivals
from lab.twin.tree import LOSSES
from lab.world import EPOCH_S, Record, World
from lab.world.gangs import Gang
from physics.power import gpu_power_w
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind

__all__ = ["Curtailed", "LongRun", "play_long", "play_random"]

#: Loads count at each step of the twin, s.
_STEP_S = 2.0
#: A job that does so much of its full speed while something is asked is not touched.
_UNTOUCHED = 0.98
#: What could be left at most is looked at so often, s.
_LOOKS_S = 60.0
#: What is drawn at the utility for each W that racks draw more.
_LOST = float(np.prod([1.0 + share for share, _ in LOSSES.values()]))


@dataclass(frozen=True)
class Met:
    """What came of one event."""

    event: Event
    baseline_w: float
    target_w: float
    kept: Kept
    #: whether the jobs that ran as it was announced had agreed to as much, by the laws of power
    is_agreed: bool


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
    def agreed(self) -> int:
        """How many events asked for no more than jobs had agreed to."""
        return sum(each.is_agreed for each in self.met)

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
            "within_what_jobs_agreed_to": self.agreed,
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
                    "is_agreed": each.is_agreed,
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
    #: the share of GPUs that jobs hold as it is announced, and what is drawn beside them, W
    busy_share: float
    other_w: float
    #: the most work that could be left (:mod:`.ceiling`): as jobs agreed, and if all could be
    #: slowed and stopped at will
    most_left: float
    most_left_at_will: float
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
            "most_left": self.most_left,
            "most_left_at_will": self.most_left_at_will,
            "busy_share": self.busy_share,
            "other_w": self.other_w,
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
        self.watts.append(self.site_w)
        if self.in_force.of(RestrictionKind.POWER_BUDGET_W):
            self._look(before, dt_s)

    @property
    def site_w(self) -> float:
        """What the site draws, as the meter of its utility reads it: with all that is lost, W."""
        twin = self.twin
        return float(twin.domain_w[twin.domains.parent < 0].sum())

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

    def moment(self) -> Moment:
        """Return the jobs that run now as :mod:`.ceiling` takes them, by true watts."""
        twin, rows = self.twin, self._rows.gpu
        host_share = self._seeing.measured(self.now, self.in_force).host_share
        gangs = [gang for gang in self.gangs if not gang.is_paused]
        gpus = [rows[gang.gpus] for gang in gangs]
        factor = [_LOST * (1.0 + float(host_share[gang.nodes].mean())) for gang in gangs]

        def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([float(values[each].mean()) for each in gpus])

        drawn_w, static_w = mean(twin.power_w), mean(twin.parts.standing_w)
        exponent, linear_share = mean(twin.parts.exponent), mean(twin.parts.linear_share)
        slowed = gpu_power_w(
            static_w=0.0,
            dynamic_w=1.0,
            relative_throughput=mean(twin.clock / twin.parts.top_clock),
            exponent=exponent,
            linear_share=linear_share,
        )
        full_w = static_w + np.maximum(drawn_w - static_w, 0.0) / slowed
        counts = np.array([float(len(each)) for each in gpus])
        times = np.array(factor)
        return Moment(
            other_w=self.site_w - float((times * counts) @ drawn_w),
            gpus=counts,
            full_w=times * np.maximum(full_w, drawn_w),
            static_w=times * static_w,
            still_w=times * mean(twin.still_w),
            exponent=exponent,
            linear_share=linear_share,
            lowest_speed=np.array([1.0 - gang.job.request.max_slowdown for gang in gangs]),
            may_pause=np.array(
                [gang.job.arrival.throttling.pause_below is not None for gang in gangs], dtype=bool
            ),
        )


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
        before = world.moment()
        met.append((_ask(world, event, asked[:number]), least_w(before)))
    record = world.run(end_s, progress)
    return Curtailed(
        approach=name,
        seed=seed,
        from_h=from_h,
        met=[_met(world, event, *said) for event, said in zip(asked, met, strict=True)],
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

    def begun() -> tuple[float, _Watched]:
        from_h, world = _world(trace, name, seed=seed, hours=hours, gpus=GPUS_LONG, is_busy=True)
        world.run(event.announced_s, progress)
        return from_h, world

    from_h, plain = begun()
    target_w = Ask(by_share=event.by_share).target_w(_baseline_w(plain, ()))
    at_first = plain.moment()
    plain.run(event.start_s, progress)
    work_without_gpu_h, most = _work_and_most(plain, event, target_w, progress)
    _, world = begun()
    baseline_w = _ask(world, event, ())
    world.run(event.start_s, progress)
    before_gpu_s = world.work_done_gpu_s()
    world.run(event.end_s, progress)
    return LongRun(
        approach=name,
        seed=seed,
        from_h=from_h,
        met=_met(world, event, baseline_w, least_w(at_first)),
        work_gpu_h=(world.work_done_gpu_s() - before_gpu_s) / 3600.0,
        work_without_gpu_h=work_without_gpu_h,
        busy_share=float(at_first.gpus.sum()) / GPUS_LONG,
        other_w=at_first.other_w,
        most_left=most[0],
        most_left_at_will=most[1],
        highest=world.highest,
        touched=world.touched,
    )


def _work_and_most(
    world: _Watched, event: Event, target_w: float, progress: Callable[[float], None] | None
) -> tuple[float, tuple[float, float]]:
    """Return the work that is done while nobody asks, GPU h, and what could be left of it."""
    before_gpu_s = world.work_done_gpu_s()
    shares = []
    for until_s in np.append(np.arange(event.start_s, event.end_s, _LOOKS_S)[1:], event.end_s):
        world.run(float(until_s), progress)
        moment = world.moment()
        gpus = float(moment.gpus.sum())
        shares.append(
            (gpus, most_work(moment, target_w), most_work(moment.at_will(), target_w))
        )  # fmt: skip
    full, agreed, at_will = np.sum(shares, axis=0).tolist()
    work_gpu_h = (world.work_done_gpu_s() - before_gpu_s) / 3600.0
    return work_gpu_h, (agreed / full if full else 1.0, at_will / full if full else 1.0)


def _world(
    trace: Path, name: str, *, seed: int, hours: float, gpus: int, is_busy: bool = False
) -> tuple[float, _Watched]:
    rule: Callable[..., tuple[float, JobTrace]] = busy_jobs_of if is_busy else jobs_of
    from_h, jobs = rule(trace, hours=hours, gpus=gpus)
    policy = policy_of(approach(name))
    return from_h, _Watched(_fleet(gpus), arrivals(jobs, seed=seed), policy, seed=seed)


def _fleet(gpus: int) -> Fleet:
    return make_even_fleet(gpus=gpus, sites=1, power_share=1.0, feed_share=1.2, cooling_share=1.2)


def _baseline_w(world: _Watched, earlier: Sequence[Event]) -> float:
    """Return what the world drew of late, W, outside of earlier events."""
    found = baseline_of(
        np.array(world.times),
        np.array(world.watts),
        until=world.twin.now_s,
        every_s=_STEP_S,
        without=spans_held(earlier),
    )
    if found is None:
        raise ValueError("there is not enough of a load to compare with")
    return found.watts


def _ask(world: _Watched, event: Event, earlier: Sequence[Event]) -> float:
    """Have the grid ask for an event now; return its baseline, W."""
    baseline_w = _baseline_w(world, earlier)
    target_w = Ask(by_share=event.by_share).target_w(baseline_w)
    starts_at, ends_at = (_at(second) for second in (event.start_s, event.end_s))
    name = str(world._inventory.sites.names[0])
    world.restrict(
        Wanted(
            RestrictionKind.POWER_BUDGET_W, Scope(ScopeKind.SITE, name), target_w,
            "the grid asks for it", "user:grid", f"event-{event.announced_s:.0f}", ends_at,
            starts_at=starts_at,
        )
    )  # fmt: skip
    return baseline_w


def _met(world: _Watched, event: Event, baseline_w: float, agreed_w: float) -> Met:
    """Return what came of an event; ``agreed_w`` is what jobs had agreed to come down to, W."""
    target_w = Ask(by_share=event.by_share).target_w(baseline_w)
    times, watts = np.array(world.times), np.array(world.watts)
    found = _kept(times, watts, event, target_w, baseline_w)
    return Met(event, baseline_w, target_w, found, agreed_w <= target_w)


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
