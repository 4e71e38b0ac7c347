"""How fast a command is: the throughput that faults leave, and how much machines vary. Pure.

What a fault predicts is the time that it costs at most, by its own share: half of the CPU time
makes steps twice as long. What is missing beyond that is the command's (decision 0125).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod, sqrt
from statistics import median

from headroom.work.contract import SignalKind
from lab.matrix.channel import Line
from lab.matrix.faults.links import STORAGE, SYNC
from lab.matrix.injecting import byte_rate, left_of, links_of, trouble_of
from lab.matrix.playing import FaultSeen, Run
from lab.matrix.scenario import FaultKind

__all__ = [
    "Gap",
    "Pace",
    "gaps",
    "noise_of",
    "pauses",
    "predicted_s",
    "shortfall",
    "slowest",
    "startup_s",
    "stood_still_s",
]

#: Runs without faults are compared in so many stretches of as many steps each.
_STRETCHES = 10
#: Messages that wait for each other in an exchange of gradients, at most.
_MESSAGES = 10
#: After so long TCP sends again what was lost and is noticed by nothing else, s.
_RETRANSMIT_S = 0.2
_SEGMENT_BITS = 8 * 1_448
#: Packets at the end of a message whose loss none after them tells, and those sent at once.
_LAST_PACKETS, _WINDOW_PACKETS = 3, 10
#: A start that resumes may take so many times as long as one that does not.
_RESTART = 2.0


@dataclass(frozen=True)
class Pace:
    """When a run had made each step for the first time. Step numbers rise, times as well."""

    numbers: list[int]
    at_s: list[float]

    @classmethod
    def of(cls, run: Run) -> Pace:
        """Return the pace of a run. A step that is told after a later one is not of it."""
        numbers: list[int] = []
        at_s: list[float] = []
        for each in run.steps:
            if not numbers or each.step.step > numbers[-1]:
                numbers.append(each.step.step)
                at_s.append(each.at_s)
        return cls(numbers, at_s)

    @property
    def took_s(self) -> float:
        """From the first step to the last, s; 0.0: there are none."""
        return self.at_s[-1] - self.at_s[0] if self.at_s else 0.0

    def number_at(self, at_s: float) -> int:
        """Return the last step that was made by a moment; before all: the first one."""
        return self.numbers[max(0, bisect_right(self.at_s, at_s) - 1)]

    def between_s(self, first: int, last: int) -> float:
        """Return how long the steps after ``first`` took, up to ``last``, s."""
        return max(0.0, self._moment_of(last) - self._moment_of(first))

    def _moment_of(self, number: int) -> float:
        return self.at_s[max(0, bisect_right(self.numbers, number) - 1)]


# --- How much the machine varies -----------------------------------------------------------------


def noise_of(runs: Sequence[Run]) -> float | None:
    """Return by which share runs without faults are apart; None: fewer than two with steps.

    The larger of two: how far they are apart as a whole, and the median of how far they are apart
    in each tenth of their steps. So neither a slow minute nor a single hiccup is taken for all.
    """
    paces = [pace for run in runs if (pace := Pace.of(run)).took_s > 0]
    if len(paces) < 2:
        return None
    last = min(pace.numbers[-1] for pace in paces)
    first = max(pace.numbers[0] for pace in paces)
    edges = [first + (last - first) * i // _STRETCHES for i in range(_STRETCHES + 1)]
    stretches = [
        _apart([pace.between_s(begin, end) for pace in paces]) for begin, end in pairwise(edges)
    ]
    return max(median(stretches), _apart([pace.between_s(first, last) for pace in paces]))


def _apart(values: Sequence[float]) -> float:
    usual = median(values)
    return (max(values) - min(values)) / usual if usual > 0 else 0.0


def slowest(runs: Sequence[Run]) -> Run:
    """Return the slowest of runs without faults: what a machine did to it, it may do again."""
    return max(runs, key=lambda run: Pace.of(run).took_s)


# --- What faults leave ---------------------------------------------------------------------------


def shortfall(run: Run, normal: Run) -> float | None:
    """Return which share of the throughput that the faults of a run leave is missing.

    Below 0: it was faster. None: steps are not told, or what a fault costs cannot be predicted.
    """
    took_s = Pace.of(run).took_s
    allowed_s = predicted_s(run, normal)
    return None if allowed_s is None or took_s <= 0 else 1 - allowed_s / took_s


def predicted_s(run: Run, normal: Run) -> float | None:
    """Return how long the steps of a run take at most by what its faults cost, s; None: unknown."""
    pace, usual = Pace.of(run), Pace.of(normal)
    if not pace.numbers or not usual.numbers:
        return None
    costs = [_cost_s(seen, run, normal) for seen in run.faults]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    made_s = usual.between_s(pace.numbers[0], pace.numbers[-1])
    return made_s + sum(known) + stood_still_s(run) + _restarts_s(run, normal)


def _cost_s(seen: FaultSeen, run: Run, normal: Run) -> float | None:
    """Return how much longer a fault makes the steps under it, at most."""
    fault = seen.fault
    if fault.kind in _BY_SHARE:
        return None if not fault.share else _usual_s(seen, run, normal) * (1 / fault.share - 1)
    if fault.kind == FaultKind.SITE_ISOLATED:
        # It may stand still for as long as nothing passes.
        return max(0.0, seen.to_s - seen.from_s - _usual_s(seen, run, normal))
    if fault.kind == FaultKind.STORAGE_SLOW:
        return _storage_cost_s(seen, run, normal)
    if fault.kind in _ON_LINKS:
        return _links_cost_s(seen, run, normal)
    return 0.0


#: These leave a share of the speed: of what computes all the time. What waits as well loses less.
_BY_SHARE = (
    FaultKind.CPU_QUOTA,
    FaultKind.POWER_LIMIT,
    FaultKind.CLOCK_LIMIT,
    # At worst a part of the batch takes as long as the whole of it.
    FaultKind.SHRINK_BATCH,
)
_ON_LINKS = (
    FaultKind.LINK_BANDWIDTH,
    FaultKind.LINK_LATENCY,
    FaultKind.LINK_JITTER,
    FaultKind.LINK_LOSS,
)


def _under(seen: FaultSeen, run: Run) -> tuple[int, int]:
    """Return the steps before a fault and at its end."""
    pace = Pace.of(run)
    return pace.number_at(seen.from_s), pace.number_at(seen.to_s)


def _usual_s(seen: FaultSeen, run: Run, normal: Run) -> float:
    """Return how long the steps under a fault take without it."""
    return Pace.of(normal).between_s(*_under(seen, run))


def _part(seen: FaultSeen, run: Run, normal: Run) -> float:
    """Return which part of the steps was under a fault."""
    before, last = _under(seen, run)
    numbers = Pace.of(normal).numbers
    return (last - before) / max(1, numbers[-1] - numbers[0])


def _links_cost_s(seen: FaultSeen, run: Run, normal: Run) -> float | None:
    names = links_of(seen.fault, list(normal.normal.bits_per_s))
    costs = [_link_cost_s(seen, run, normal, name) for name in names]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _link_cost_s(seen: FaultSeen, run: Run, normal: Run, name: str) -> float | None:
    trouble = trouble_of(seen.fault, normal.normal.bits_per_s.get(name))
    bits = 8 * normal.normal.bytes_moved.get(name, 0) * _part(seen, run, normal)
    before, last = _under(seen, run)
    cost_s = 0.0
    if trouble.bits_per_s is not None:
        cost_s += bits / trouble.bits_per_s
    if trouble.loss_share:
        packets = bits / _SEGMENT_BITS + (last - before)
        messages = (last - before) * _MESSAGES if name == SYNC else packets / _WINDOW_PACKETS
        cost_s += _resent_s(packets, messages, trouble.loss_share)
    if trouble.latency_s or trouble.jitter_s:
        if name != SYNC:
            # How often it asks and waits is not known.
            return None
        cost_s += (last - before) * _MESSAGES * (trouble.latency_s + trouble.jitter_s)
    return cost_s


def _resent_s(packets: float, messages: float, loss_share: float) -> float:
    """Return how long TCP waits for what is lost, with three standard deviations more.

    It notices at once what is lost before others of the same message, unless it is lost again.
    """
    lost = min(packets, messages * _LAST_PACKETS) * loss_share + packets * loss_share**2
    return (lost + 3 * sqrt(lost)) * _RETRANSMIT_S


def _storage_cost_s(seen: FaultSeen, run: Run, normal: Run) -> float | None:
    part = _part(seen, run, normal)
    known = normal.normal
    sent = [
        (known.bytes_moved.get(STORAGE, 0), byte_rate(known.bits_per_s.get(STORAGE))),
        (known.disk_bytes_moved, known.disk_bytes_per_s),
    ]
    left = [(moved, left_of(seen.fault, rate)) for moved, rate in sent]
    costs = [part * moved / rate for moved, rate in left if rate is not None]
    return sum(costs) if costs else None


# --- What ends and begins again ------------------------------------------------------------------


def pauses(ledger: Sequence[Line]) -> Iterator[tuple[Line, Line]]:
    """Yield the pauses that were made, each with what ended it."""
    for line, after in pairwise(each for each in ledger if each.kind in _PAUSES):
        if line.kind == SignalKind.PAUSE and line.done_s is not None:
            yield line, after


_PAUSES = (SignalKind.PAUSE, SignalKind.RESUME)


def stood_still_s(run: Run) -> float:
    """Return how long the command stood still since it was told to, s."""
    return sum(after.told_s - (line.done_s or 0.0) for line, after in pauses(run.ledger))


def _restarts_s(run: Run, normal: Run) -> float:
    """Return how long a run takes at most to be again where it was when it was ended, s."""
    return sum(_restart_s(gap, run, normal) for gap in gaps(run))


def _restart_s(gap: Gap, run: Run, normal: Run) -> float:
    """Return how long a restart takes at most: to leave, to start, and to make steps again."""
    start_s = min(gap.starting_s, _RESTART * startup_s(normal))
    again_s = Pace.of(normal).between_s(gap.resumed_step - 1, gap.last_step)
    return gap.leaving_s + start_s + again_s * _slowdown(run, gap.to_s)


def _slowdown(run: Run, at_s: float) -> float:
    """Return how many times longer steps take at a moment, by the faults that leave a share."""
    shares = [
        seen.fault.share
        for seen in run.faults
        if seen.fault.kind in _BY_SHARE and seen.fault.share and seen.from_s <= at_s < seen.to_s
    ]
    return 1.0 / prod(shares, start=1.0)


def startup_s(normal: Run) -> float:
    """Return how long a start takes to its first step, s."""
    return -normal.lives[0].from_s if normal.lives else 0.0


@dataclass(frozen=True)
class Gap:
    """The time between the last step of a start and the first one of the next that made any."""

    #: the number of the start after it
    start: int
    #: the last one made before, and the first one made after
    last_step: int
    resumed_step: int
    #: when the first step after it was made, s of the run
    to_s: float
    #: until the next start began, and from then to its first step, s
    leaving_s: float
    starting_s: float


def gaps(run: Run) -> list[Gap]:
    """Return the times in which no start made steps, but those at both ends of a run."""
    starts = [[each for each in run.steps if each.start == i] for i in range(run.starts)]
    made = [(i, steps) for i, steps in enumerate(starts) if steps]
    found = []
    for (_, before), (i, after) in pairwise(made):
        began_s = run.lives[i].from_s
        found.append(
            Gap(
                start=i,
                last_step=max(each.step.step for each in before),
                resumed_step=after[0].step.step,
                to_s=after[0].at_s,
                leaving_s=began_s - before[-1].at_s,
                starting_s=after[0].at_s - began_s,
            )
        )
    return found
