"""A world to which a grid says what it may draw, and what came of each event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from admission.core.curtailment import Ask, Baseline, Kept, baseline_of, held_from, kept
from admission.core.curtailment.cost import SURE, Asked, Estimate
from admission.core.curtailment.foreseen import estimate_held
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
    #: what was said beforehand; None: there is no controller that could be asked
    said: Estimate | None
    #: the work that jobs lost while it was held, GPU h
    lost_gpu_h: float
    #: jobs of the highest class that it slowed, paused or ended
    touched: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Whether it was held by what jobs agreed to."""
        return self.kept.verdict == "held" and not self.touched

    @property
    def is_as_said(self) -> bool:
        """Whether the work that was lost lies in the band that was said."""
        return self.said is not None and self.said.is_within(self.lost_gpu_h)

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        said = self.said
        return {
            "announced_s": self.event.announced_s,
            "start_s": self.event.start_s,
            "end_s": self.event.end_s,
            "by_share": self.event.by_share,
            "baseline_w": self.baseline_w,
            "target_w": self.target_w,
            "is_agreed": self.is_agreed,
            "said": None if said is None else said.in_short(),
            "lost_gpu_h": self.lost_gpu_h,
            "highest_class_touched": list(self.touched),
            **self.kept.as_data(),
        }


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
    def answered(self) -> int:
        """How many events were answered beforehand."""
        return sum(each.said is not None for each in self.met)

    @property
    def as_said(self) -> int:
        """How many events cost as much work as was said, 8 of 10 by what is claimed."""
        return sum(each.is_as_said for each in self.met)

    @property
    def said_sure(self) -> int:
        """How many events were said to be kept, with :data:`SURE` or more."""
        return len(self._sure)

    @property
    def kept_of_sure(self) -> int:
        """How many of these were held, and touched nobody of the highest class."""
        return sum(each.is_kept for each in self._sure)

    @property
    def sure_of_all(self) -> float:
        """How sure they were on average to be kept: what :attr:`kept` is held against."""
        said = [each.said.sure for each in self.met if each.said is not None]
        return sum(said) / len(said) if said else 0.0

    @property
    def kept(self) -> int:
        """How many were held, and touched nobody of the highest class."""
        return sum(each.is_kept for each in self.met)

    @property
    def _sure(self) -> list[Met]:
        return [each for each in self.met if each.said is not None and each.said.sure >= SURE]

    @property
    def in_reach(self) -> list[Met]:
        """Those of which it was said that jobs can give as much as was asked for."""
        return [each for each in self.met if each.said is not None and each.said.is_possible]

    @property
    def held_in_reach(self) -> int:
        """How many of these were held."""
        return sum(each.kept.verdict == "held" for each in self.in_reach)

    @property
    def touched_in_reach(self) -> set[str]:
        """Jobs of the highest class that one of these touched."""
        return {key for each in self.in_reach for key in each.touched}

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
            "said_in_reach": len(self.in_reach),
            "held_in_reach": self.held_in_reach,
            "highest_class_touched_in_reach": len(self.touched_in_reach),
            "over_budget_s": self.record.over_budget_s,
            "work_gpu_h": self.record.work_gpu_s / 3600.0,
            "answered": self.answered,
            "as_said": self.as_said,
            "said_sure": self.said_sure,
            "kept_of_sure": self.kept_of_sure,
            "sure_of_all": self.sure_of_all,
            "kept": self.kept,
            "each": [each.as_data() for each in self.met],
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
            **self.met.as_data(),
            "work_gpu_h": self.work_gpu_h,
            "work_without_gpu_h": self.work_without_gpu_h,
            "work_left": self.work_left,
            "most_left": self.most_left,
            "most_left_at_will": self.most_left_at_will,
            "busy_share": self.busy_share,
            "other_w": self.other_w,
            "highest_class_jobs": self.highest,
        }


@dataclass
class _Touches:
    """Jobs of the highest class while something is asked.

    By job: how long it ran, how much of that at full speed, s; and those that were paused, shrunk
    or ended.
    """

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    clocked_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    stopped: set[str] = field(default_factory=set)

    @staticmethod
    def over(all_: Iterable[_Touches]) -> _Touches:
        """Return what was over several times."""
        total = _Touches()
        for each in all_:
            total.stopped |= each.stopped
            for key, seconds in each.seconds.items():
                total.seconds[key] += seconds
                total.clocked_s[key] += each.clocked_s[key]
        return total

    @property
    def touched(self) -> tuple[str, ...]:
        """Those that were paused, shrunk or ended, or slowed below :data:`_UNTOUCHED`."""
        slowed = {
            key
            for key, seconds in self.seconds.items()
            if self.clocked_s[key] < _UNTOUCHED * seconds
        }
        return tuple(sorted(slowed | self.stopped))


class _Watched(World):
    """A world that notes at each step what its site draws, and who is touched by events."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.times: list[float] = []
        self.watts: list[float] = []
        #: the work that jobs lost in each step, by slower clocks and pauses, GPU·s
        self.lost_gpu_s: list[float] = []
        #: by event
        self.touches: list[_Touches] = []

    def _step(self, dt_s: float) -> None:
        before = {gang.key: (gang, self.gangs.clocked_s(gang)) for gang in self.gangs}
        super()._step(dt_s)
        self.times.append(self.twin.now_s)
        self.watts.append(self.site_w)
        did_s = {
            gang.key: self.gangs.clocked_s(gang) - before[gang.key][1]
            if gang.key in before
            else dt_s
            for gang in self.gangs
        }
        self.lost_gpu_s.append(
            sum(
                gang.gpu_count * (dt_s if gang.is_paused else max(dt_s - did_s[gang.key], 0.0))
                for gang in self.gangs
            )
        )
        if self.in_force.of(RestrictionKind.POWER_BUDGET_W):
            self._look(before, did_s, dt_s)

    @property
    def site_w(self) -> float:
        """What the site draws, as the meter of its utility reads it: with all that is lost, W."""
        twin = self.twin
        return float(twin.domain_w[twin.domains.parent < 0].sum())

    def _look(
        self, before: Mapping[str, tuple[Gang, float]], did_s: Mapping[str, float], dt_s: float
    ) -> None:
        found, now = self.touches[-1], {gang.key: gang for gang in self.gangs if _is_highest(gang)}
        for key, gang in now.items():
            found.seconds[gang.job.key] += dt_s
            found.clocked_s[gang.job.key] += did_s[key]
            if gang.is_paused or gang.scale < 1.0 or gang.leaves_s is not None:
                found.stopped.add(gang.job.key)
        # What is gone and not done was ended.
        gone = [gang for key, (gang, _) in before.items() if key not in now and _is_highest(gang)]
        found.stopped |= {gang.job.key for gang in gone if gang.job.state == "queued"}

    def answer(self, target_w: float, spread_w: float, lasts_s: float) -> Estimate | None:
        """Return what is said beforehand of a target, by the last look of the controller."""
        holding = self._holding.last
        if holding is None:
            return None
        may_pause = {
            gang.id: 1.0 - gang.job.request.max_slowdown
            for gang in self.gangs
            if gang.job.arrival.throttling.pause_below is not None and not gang.is_ending
        }
        asked = Asked(target_w=target_w, spread_w=spread_w, lasts_s=lasts_s)
        return estimate_held(
            holding, self.site, asked, may_pause=may_pause, tuning=self.policy.control
        )

    @property
    def site(self) -> str:
        """The name of its only site."""
        return str(self._inventory.sites.names[0])

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


def _is_highest(gang: Gang) -> bool:
    return not gang.job.request.max_slowdown


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
    said = []
    for number, event in enumerate(asked):
        world.run(event.announced_s, progress)
        said.append(_ask(world, event, asked[:number]))
    record = world.run(end_s, progress)
    touches = _Touches.over(world.touches)
    return Curtailed(
        approach=name,
        seed=seed,
        from_h=from_h,
        met=[
            _met(world, each, touched.touched)
            for each, touched in zip(said, world.touches, strict=True)
        ],
        highest=len(touches.seconds),
        touched=touches.touched,
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
    target_w = Ask(by_share=event.by_share).target_w(_baseline(plain, ()).watts)
    at_first = plain.moment()
    plain.run(event.start_s, progress)
    work_without_gpu_h, most = _work_and_most(plain, event, target_w, progress)
    _, world = begun()
    said = _ask(world, event, ())
    world.run(event.start_s, progress)
    before_gpu_s = world.work_done_gpu_s()
    world.run(event.end_s, progress)
    touches = _Touches.over(world.touches)
    return LongRun(
        approach=name,
        seed=seed,
        from_h=from_h,
        met=_met(world, said, touches.touched),
        work_gpu_h=(world.work_done_gpu_s() - before_gpu_s) / 3600.0,
        work_without_gpu_h=work_without_gpu_h,
        busy_share=float(at_first.gpus.sum()) / GPUS_LONG,
        other_w=at_first.other_w,
        most_left=most[0],
        most_left_at_will=most[1],
        highest=len(touches.seconds),
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


def _baseline(world: _Watched, earlier: Sequence[Event]) -> Baseline:
    """Return what the world drew of late, outside of earlier events."""
    found = baseline_of(
        np.array(world.times),
        np.array(world.watts),
        until=world.twin.now_s,
        every_s=_STEP_S,
        without=spans_held(earlier),
    )
    if found is None:
        raise ValueError("there is not enough of a load to compare with")
    return found


@dataclass(frozen=True)
class _Said:
    """An event as it was announced: its baseline, W, what jobs had agreed to come down to, W, and
    the answer beforehand."""

    event: Event
    baseline_w: float
    target_w: float
    agreed_w: float
    answer: Estimate | None


def _ask(world: _Watched, event: Event, earlier: Sequence[Event]) -> _Said:
    """Have the grid ask for an event now; return what is said of it."""
    baseline = _baseline(world, earlier)
    target_w = Ask(by_share=event.by_share).target_w(baseline.watts)
    answer = world.answer(target_w, baseline.spread_w, event.end_s - _held_from_s(event))
    said = _Said(event, baseline.watts, target_w, least_w(world.moment()), answer)
    starts_at, ends_at = (_at(second) for second in (event.start_s, event.end_s))
    world.touches.append(_Touches())
    world.restrict(
        Wanted(
            RestrictionKind.POWER_BUDGET_W, Scope(ScopeKind.SITE, world.site), target_w,
            "the grid asks for it", "user:grid", f"event-{event.announced_s:.0f}", ends_at,
            starts_at=starts_at,
        )
    )  # fmt: skip
    return said


def _held_from_s(event: Event) -> float:
    return (held_from(_at(event.announced_s), _at(event.start_s)) - _at(0.0)).total_seconds()


def _met(world: _Watched, said: _Said, touched: tuple[str, ...]) -> Met:
    """Return what came of an event."""
    event, times = said.event, np.array(world.times)
    held = (times > _held_from_s(event)) & (times <= event.end_s)
    return Met(
        event=event,
        baseline_w=said.baseline_w,
        target_w=said.target_w,
        kept=_kept(times, np.array(world.watts), event, said.target_w, said.baseline_w),
        is_agreed=said.agreed_w <= said.target_w,
        said=said.answer,
        lost_gpu_h=float(np.array(world.lost_gpu_s)[held].sum()) / 3600.0,
        touched=touched,
    )


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
