"""Where the time of a command's steps went, by its own reports, and why a run took longer. Pure.

Ranks report seconds by section once a second (:mod:`headroom.training`). Of a command without these
what its lines of steps tell counts, ``sync_s`` and ``wait_s``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite

from headroom.training.sections import Section
from lab.matrix.pace import Gap, Pace, gaps, stood_still_s
from lab.matrix.playing import Reported, Run, StepSeen
from lab.matrix.report import words
from lab.matrix.result import Part, Series

__all__ = ["cause_of", "parts_of", "timeline"]

_SYNC, _WAIT, _SAVE, _PAUSE, _COMPUTE = "sync", "wait", "save", "pause", "compute"
_KINDS: Mapping[str, str] = {
    Section.GRADIENT_SYNC: _SYNC,
    Section.DATA_LOADING: _WAIT,
    Section.CHECKPOINT_SAVE: _SAVE,
    Section.CHECKPOINT_RESTORE: _SAVE,
    Section.PAUSE: _PAUSE,
}
#: In the order in which they are drawn. To stand still as told is to wait.
_DRAWN = {_COMPUTE: (_COMPUTE,), _SYNC: (_SYNC,), _WAIT: (_WAIT, _PAUSE), _SAVE: (_SAVE,)}
_SAID = {
    _COMPUTE: "computing",
    _SYNC: "exchanging gradients",
    _WAIT: "waiting for data",
    _SAVE: "saving and restoring",
}
#: A rank reports once a second: in shorter stretches there may be nothing.
_REPORT_S = 1.0
_MOST_POINTS = 120
_LEAST_BIN_S = 0.25
#: So much of what a run took longer is worth a word, as a share and in s.
_WORTH_SHARE, _WORTH_S = 0.05, 0.05
#: Times that are closer together than this share are the same.
_SAME_SHARE = 0.02


@dataclass(frozen=True)
class _Spent:
    """What one rank says of a time: seconds by kind. What is in none of them it computed."""

    from_s: float
    to_s: float
    by_kind: dict[str, float] = field(default_factory=dict)

    def share(self, kind: str) -> float:
        """Return the share of this time that went to a kind."""
        length_s = self.to_s - self.from_s
        if kind == _COMPUTE:
            return max(0.0, 1 - sum(self.by_kind.values()) / length_s)
        return min(1.0, self.by_kind.get(kind, 0.0) / length_s)


def _spent(run: Run) -> list[_Spent]:
    """Return what a run's ranks said of their time; without reports what its steps tell."""
    said = map(_reported, run.reports) if run.reports else _told(run.steps)
    return [each for each in said if each.to_s > each.from_s]


def _reported(each: Reported) -> _Spent:
    by_kind: dict[str, float] = {}
    for name, spent_s in each.report.sections.items():
        if kind := _KINDS.get(name):
            by_kind[kind] = by_kind.get(kind, 0.0) + spent_s
    return _Spent(each.at_s - each.report.span_s, each.at_s, by_kind)


def _told(steps: Sequence[StepSeen]) -> Iterator[_Spent]:
    for before, after in pairwise(steps):
        told = {_SYNC: after.step.sync_s, _WAIT: after.step.wait_s}
        by_kind = {
            kind: max(0.0, spent_s)
            for kind, spent_s in told.items()
            if spent_s is not None and isfinite(spent_s)
        }
        if by_kind and before.start == after.start:
            yield _Spent(before.at_s, after.at_s, by_kind)


def _ranks(run: Run) -> int:
    return len({each.report.rank for each in run.reports}) or 1


# --- Drawn ---------------------------------------------------------------------------------------


def timeline(run: Run) -> list[Series]:
    """Return the shares of time that went to compute, sync, waiting and saving, over the run.

    Each is a share of the time that ranks spoke of. Where nobody did, as while the command was
    started again, there is a gap. Of a command that tells nothing there are no series.
    """
    spent = _spent(run)
    if not spent:
        return []
    end_s = max(each.to_s for each in spent)
    bin_s = max(_REPORT_S if run.reports else _LEAST_BIN_S, end_s / _MOST_POINTS)
    count = int(end_s / bin_s) + 1
    shares = {kind: [0.0] * count for kind in _DRAWN}
    known_s = [0.0] * count
    for each in spent:
        for number in range(max(0, int(each.from_s / bin_s)), int(each.to_s / bin_s) + 1):
            begin_s, end_s = number * bin_s, (number + 1) * bin_s
            part_s = max(0.0, min(each.to_s, end_s) - max(each.from_s, begin_s))
            known_s[number] += part_s
            for kind, of in _DRAWN.items():
                shares[kind][number] += part_s * sum(map(each.share, of))
    return [
        Series(
            name=f"{kind}_share",
            unit="share",
            plot="time_by_kind",
            t_s=[number * bin_s for number in range(count)],
            values=[
                min(1.0, part_s / all_s) if all_s > 0 else None
                for part_s, all_s in zip(values, known_s, strict=True)
            ],
        )
        for kind, values in shares.items()
    ]


# --- In words ------------------------------------------------------------------------------------


def parts_of(run: Run, normal: Run) -> list[Part]:
    """Return where a run's time from its first step to its last went, beside the usual.

    They add up to it: what nothing else tells of is computing. Of a run without steps: nothing.
    """
    pace, usual = Pace.of(run), Pace.of(normal)
    if not pace.numbers or not usual.numbers:
        return []
    usual_s = usual.between_s(pace.numbers[0], pace.numbers[-1])
    share = usual_s / usual.took_s if usual.took_s else 0.0
    now, before = _by_kind(run), _by_kind(normal)
    told = [
        Part(name=_SAID[kind], took_s=now.get(kind, 0.0), usual_s=share * before.get(kind, 0.0))
        for kind in (_SYNC, _WAIT, _SAVE)
        if kind in now or kind in before
    ]
    again = [
        Part(name=name, took_s=took_s, usual_s=0.0)
        for name, took_s in (
            ("starting again", sum(gap.leaving_s + gap.starting_s for gap in gaps(run))),
            ("making steps again", sum(_again_s(gap, run) for gap in gaps(run))),
            ("standing still as told", stood_still_s(run)),
        )
        if took_s
    ]
    others = [*told, *again]
    length_s = run.steps[-1].at_s - run.steps[0].at_s
    rest = Part(
        name=_SAID[_COMPUTE] if told else "making steps",
        took_s=max(0.0, length_s - sum(each.took_s for each in others)),
        usual_s=max(0.0, usual_s - sum(each.usual_s for each in others)),
    )
    return [rest, *others]


def _by_kind(run: Run) -> dict[str, float]:
    """Return the seconds of a rank by kind, as the mean of all."""
    totals: dict[str, float] = {}
    for each in _spent(run):
        for kind, spent_s in each.by_kind.items():
            totals[kind] = totals.get(kind, 0.0) + spent_s / _ranks(run)
    return totals


def _again_s(gap: Gap, run: Run) -> float:
    """Return how long steps took that were made again after a gap."""
    again = [
        each.at_s
        for each in run.steps
        if each.at_s >= gap.to_s and each.start == gap.start and each.step.step <= gap.last_step
    ]
    return max(again, default=gap.to_s) - gap.to_s


def cause_of(run: Run, normal: Run) -> str:
    """Return why a run took longer than without faults, and why steps were made again; or ""."""
    return " ".join(filter(None, [_longer(parts_of(run, normal)), *map(_resumed, gaps(run))]))


def _longer(parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    took_s, usual_s = sum(each.took_s for each in parts), sum(each.usual_s for each in parts)
    more_s = took_s - usual_s
    if more_s <= _SAME_SHARE * usual_s:
        return "It took as long as without faults."
    worth = sorted(
        (each for each in parts if each.more_s >= max(_WORTH_S, _WORTH_SHARE * more_s)),
        key=lambda each: -each.more_s,
    )
    said = ", ".join(f"{words.length(each.more_s)} more {each.name}" for each in worth)
    return f"It took {words.length(took_s)}, {words.length(usual_s)} without faults: {said}."


def _resumed(gap: Gap) -> str:
    again = gap.last_step - gap.resumed_step + 1
    if again <= 0:
        return f"Started again after step {gap.last_step}, it made no step twice."
    steps = words.count(again, "step")
    return (
        f"Started again after step {gap.last_step}, it went on from step {gap.resumed_step - 1}:"
        f" {steps} made again."
    )
