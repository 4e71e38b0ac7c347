"""The judgement of a command's runs under a scenario: measures, series, checks, one cell. Pure.

A cell is as good as the worst of its runs. The names of measures and series are those that
expectations of scenarios name: docs/reference/matrix.md lists them.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from lab.matrix import pace, spending
from lab.matrix.channel import Line
from lab.matrix.expect import Condition, Told, judge, mean_between, recovered_after_s
from lab.matrix.playing import FaultSeen, Run, StepSeen
from lab.matrix.report import words
from lab.matrix.result import (
    Better,
    Cell,
    Check,
    Measure,
    Series,
    Span,
    Verdict,
    verdict_of_checks,
    why_of_checks,
)
from lab.matrix.scenario import QUANTITIES, Expectation, Fault, Scenario

__all__ = [
    "OF_REPEATS",
    "SHORTFALL",
    "cell_of",
    "falls_short",
    "is_of_pace",
    "throughput",
    "unjudged",
]

#: Measures of what two runs of a scenario have in common.
OF_REPEATS = frozenset({"repeat_difference", "checkpoints_differing"})
#: The measure of throughput by what the faults leave.
SHORTFALL = "throughput_shortfall"

#: Throughput that is back to this share of what it was before the faults has recovered.
_RECOVERED_SHARE = 0.5
_MOST_POINTS = 120
_MOST_NAMES = 5
_LEAST_BIN_S = 0.25


def throughput(run: Run) -> float | None:
    """Return new steps a second, from the first one to the last; None: fewer than two."""
    if not run.steps:
        return None
    made = len({each.step.step for each in run.steps}) - 1
    took_s = run.steps[-1].at_s - run.steps[0].at_s
    return made / took_s if made > 0 and took_s > 0 else None


def unjudged(scenario: Scenario, why: str, verdict: Verdict, *, again: str) -> Cell:
    """Return the cell of a scenario that could not be tried, or of which nothing can be seen."""
    return Cell(
        scenario=scenario.name,
        title=scenario.title,
        about=scenario.about,
        seed=0,
        verdict=verdict,
        why=why,
        again=again,
    )


def cell_of(
    scenario: Scenario,
    runs: Sequence[Run],
    normal: Run,
    *,
    again: str,
    unfaulted: Sequence[Run] = (),
) -> Cell:
    """Return the cell of ``runs`` under a scenario, beside a run without faults.

    ``unfaulted`` are runs without faults by which throughput is judged, and how much the machine
    varies: without any it is not.
    """
    usual = pace.slowest(unfaulted) if unfaulted else normal
    noise = pace.noise_of(unfaulted)
    measures = [*_measures(scenario, runs, normal), *_of_pace(runs, usual, noise)]
    checks = _checks(scenario, runs, measures, noise)
    untouched = _untouched(runs)
    # A fault that touched nothing proves nothing good; what failed all the same has failed.
    if untouched is not None and verdict_of_checks(checks) != Verdict.FAILED:
        why = f"{untouched.fault.kind}: {untouched.why_not}"
        verdict = Verdict.NOT_MEASURED if untouched.is_unseen else Verdict.NOT_RUN
        return replace(unjudged(scenario, why, verdict, again=again), log=_log(runs))
    # What is shown is the slowest of them, of which there is most to say.
    shown = pace.slowest(runs)
    return Cell(
        scenario=scenario.name,
        title=scenario.title,
        about=scenario.about,
        seed=0,
        verdict=verdict_of_checks(checks),
        why=why_of_checks(checks),
        checks=checks,
        measures=measures,
        cause=spending.cause_of(shown, usual) if shown.faults else "",
        parts=spending.parts_of(shown, usual),
        series=_series(shown),
        spans=[_span(each) for each in shown.faults],
        log=_log(runs),
        digest=_digest(runs[0]),
        simulated_s=shown.length_s,
        wall_s=sum(run.wall_s for run in runs),
        again=again,
    )


def _untouched(runs: Sequence[Run]) -> FaultSeen | None:
    """Return the first fault that touched nothing, so that the runs prove nothing; or None."""
    return next((seen for run in runs for seen in run.faults if seen.why_not), None)


def _checks(
    scenario: Scenario, runs: Sequence[Run], measures: list[Measure], noise: float | None
) -> list[Check]:
    """Judge each run by its series, and all of them by the measures, which are the worst."""
    by_name = {each.name: each for each in measures}
    found = [
        judge(_as_it_was(scenario, run), Told({s.name: s for s in _series(run)}, by_name))
        for run in runs
    ]
    # Of each expectation the worst of the runs.
    order = [Verdict.PASSED, Verdict.NOT_MEASURED, Verdict.FAILED, Verdict.ERROR]
    worst = [
        max(each, key=lambda check: order.index(check.verdict)) for each in zip(*found, strict=True)
    ]
    return [_unless_noisy(*each, noise) for each in zip(scenario.expect, worst, strict=True)]


def _unless_noisy(expectation: Expectation, check: Check, noise: float | None) -> Check:
    """Return a check, or where it is of throughput and the machine varies more, that it cannot."""
    if not is_of_pace(expectation) or check.verdict == Verdict.NOT_MEASURED:
        return check
    bar = expectation.at_most.value if expectation.at_most else 0.0
    if noise is not None and noise <= bar:
        return check
    said = "nothing tells how much this machine varies"
    if noise is not None:
        said = f"too noisy to judge: steps vary by {100 * noise:.3g} %, bar {100 * bar:.3g} %"
    return replace(check, verdict=Verdict.NOT_MEASURED, said=said)


def is_of_pace(expectation: Expectation) -> bool:
    """Say whether an expectation is one of throughput, by what the faults leave."""
    return expectation.at_most is not None and expectation.at_most.measure == SHORTFALL


def falls_short(scenario: Scenario, cell: Cell) -> bool:
    """Say whether a cell, judged by a scenario, has failed by its throughput and nothing else."""
    # A cell that was not judged has no checks.
    judged = zip(scenario.expect, cell.checks, strict=False)
    failed = [expected for expected, check in judged if check.verdict == Verdict.FAILED]
    return bool(failed) and all(map(is_of_pace, failed))


def _as_it_was(scenario: Scenario, run: Run) -> Scenario:
    """Return the scenario with the times at which its faults acted in a run."""
    faults = tuple(_as_seen(each, run) for each in scenario.faults)
    return replace(scenario, faults=faults, duration=f"{run.length_s:.3f}s")


def _as_seen(fault: Fault, run: Run) -> Fault:
    seen = next((each for each in run.faults if each.fault == fault), None)
    if seen is None:
        return fault
    lasts = None if fault.lasts is None else f"{seen.to_s - seen.from_s:.3f}s"
    return replace(fault, at=f"{seen.from_s:.3f}s", lasts=lasts)


# --- Measures ------------------------------------------------------------------------------------


def _measures(scenario: Scenario, runs: Sequence[Run], normal: Run) -> list[Measure]:
    usual = throughput(normal)
    first = runs[0]
    return [
        _worst("throughput_loss", "share", [_throughput_loss(run, usual) for run in runs]),
        _worst("loss_difference", "", [_loss_difference(run.steps, normal) for run in runs]),
        _worst(
            "resume_difference",
            "",
            [_resume_difference(run, normal) for run in runs],
            "when it was started again, it made no step whose loss could be compared",
        ),
        _repeat_difference(runs),
        _worst("failed_exits", "", [_failed_exits(run) for run in runs]),
        _worst("missing_steps", "", [_missing_steps(run, normal) for run in runs], _NO_STEPS),
        _corrupt(runs),
        _differing_checkpoints(runs),
        _worst("work_lost_steps", "", [_work_lost(run) for run in runs], _NO_STEPS),
        _worst("began_anew", "", [_began_anew(run) for run in runs], _NO_STEPS),
        _worst("resubmissions", "", [float(run.starts - 1) for run in runs]),
        _processes_left(runs),
        _worst("directives_missed", "", [_directives_missed(run) for run in runs], _NOT_TOLD),
        _worst("steps_in_pause", "", [_steps_in_pause(run) for run in runs], _NOT_TOLD),
        _worst("retries", "", [_retries(run) for run in runs], "the command tells no retries"),
        _worst("sync_delay_s", "s", [_sync_delay_s(run, normal) for run in runs], _NO_SYNC),
        _worst("recovery_s", "s", [_recovery_s(scenario, run) for run in runs], _NO_RECOVERY),
        Measure(name="steps_per_s", value=throughput(first), unit="1/s", better=Better.HIGHER),
        Measure(name="final_loss", value=_final_loss(first), better=Better.LOWER),
        Measure(
            name="checkpoints", value=float(len(first.checkpoints.digests)), better=Better.NEITHER
        ),
    ]


def _of_pace(runs: Sequence[Run], usual: Run, noise: float | None) -> list[Measure]:
    """Return the throughput that is missing, of the best run: what else a machine does, slows."""
    found = [(pace.shortfall(run, usual), run) for run in runs]
    known = [(value, run) for value, run in found if value is not None]
    value, said = None, _NO_PACE
    if len(known) == len(found):
        value, run = min(known, key=lambda each: each[0])
        said = _against(run, usual)
    noise_said = "between runs without faults" if noise is not None else "it was not looked for"
    return [
        Measure(name=SHORTFALL, value=value, unit="share", better=Better.LOWER, said=said),
        Measure(
            name="throughput_noise", value=noise, unit="share", better=Better.LOWER, said=noise_said
        ),
    ]


def _against(run: Run, usual: Run) -> str:
    allowed_s = pace.predicted_s(run, usual)
    took = words.length(pace.Pace.of(run).took_s)
    return "" if allowed_s is None else f"{took}, and the faults leave {words.length(allowed_s)}"


_NO_PACE = "the command tells too few steps, or nobody can say what a fault costs"
_NOT_TOLD = "the command was told nothing"
_NO_STEPS = "the command tells no steps"
_NO_SYNC = "the command tells no sync_s, or none while a fault acted"
_NO_RECOVERY = "the run ended before, or throughput was not seen before the faults"
_NO_LOSS = "no step with a loss is in both runs"


def _worst(name: str, unit: str, values: Iterable[float | None], without: str = "") -> Measure:
    """Return the highest of a measure whose low values are good. One that is missing is missing."""
    known = list(values)
    value = None if None in known else max((v for v in known if v is not None), default=None)
    said = without if value is None else ""
    if value is None and not said and name.endswith("difference"):
        said = _NO_LOSS
    return Measure(name=name, value=_finite(value), unit=unit, better=Better.LOWER, said=said)


def _finite(value: float | None) -> float | None:
    # JSON has no infinity; no loss is that far off.
    return None if value is None or math.isnan(value) else min(value, 1e300)


def _throughput_loss(run: Run, usual: float | None) -> float | None:
    now = throughput(run)
    return None if now is None or not usual else 1 - now / usual


def _losses(steps: Iterable[StepSeen]) -> dict[int, float]:
    """Return the loss of each step, the last one that was told of it."""
    return {each.step.step: each.step.loss for each in steps if each.step.loss is not None}


def _loss_difference(steps: Sequence[StepSeen], normal: Run) -> float | None:
    """Return the largest difference of a step's loss from that of another run."""
    usual = _losses(normal.steps)
    apart = [
        _apart(each.step.loss, usual[each.step.step])
        for each in steps
        if each.step.loss is not None and each.step.step in usual
    ]
    return max(apart, default=None)


def _apart(loss: float, other: float) -> float:
    if math.isnan(loss) or math.isnan(other):
        return 0.0 if math.isnan(loss) and math.isnan(other) else math.inf
    return 0.0 if loss == other else abs(loss - other)


def _resume_difference(run: Run, normal: Run) -> float | None:
    """Return how far the losses after restarts are from another run's; 0.0: no restart."""
    if run.starts == 1:
        return 0.0
    return _loss_difference([each for each in run.steps if each.start > 0], normal)


def _repeat_difference(runs: Sequence[Run]) -> Measure:
    if len(runs) < 2:
        return Measure(
            name="repeat_difference", value=None, better=Better.LOWER, said="it was run once"
        )
    return _worst(
        "repeat_difference", "", [_loss_difference(run.steps, runs[0]) for run in runs[1:]]
    )


def _failed_exits(run: Run) -> float:
    return float(sum(code != 0 for code in run.exits) + run.timed_out)


def _missing_steps(run: Run, normal: Run) -> float | None:
    if not normal.steps:
        return None
    made = {each.step.step for each in run.steps}
    return float(len({each.step.step for each in normal.steps} - made))


def _corrupt(runs: Sequence[Run]) -> Measure:
    names = sorted({name for run in runs for name in run.checkpoints.corrupt})
    told = min(run.checkpoints.told for run in runs)
    said = ", ".join(names) if told else "no checkpoint has its .sha256 beside it"
    value = float(len(names)) if told else None
    return Measure(name="checkpoints_corrupt", value=value, better=Better.LOWER, said=said)


def _differing_checkpoints(runs: Sequence[Run]) -> Measure:
    name = "checkpoints_differing"
    if len(runs) < 2:
        return Measure(name=name, value=None, better=Better.LOWER, said="it was run once")
    if not any(run.checkpoints.digests for run in runs):
        return Measure(name=name, value=None, better=Better.LOWER, said="there are no checkpoints")
    first = runs[0].checkpoints
    names = sorted({each for run in runs[1:] for each in first.differing(run.checkpoints)})
    return Measure(
        name=name, value=float(len(names)), better=Better.LOWER, said=", ".join(names[:_MOST_NAMES])
    )


def _starts(run: Run) -> list[list[int]]:
    """Return the numbers of the steps of each start that made some."""
    numbers = sorted({each.start for each in run.steps})
    return [[each.step.step for each in run.steps if each.start == number] for number in numbers]


def _work_lost(run: Run) -> float | None:
    """Return how many steps were repeated."""
    if not run.steps:
        return None
    return float(sum(count - 1 for count in Counter(each.step.step for each in run.steps).values()))


def _began_anew(run: Run) -> float | None:
    """Return how many later starts began at the first step again, and resumed nothing."""
    if not run.steps:
        return None
    first, *later = _starts(run)
    return float(sum(steps[0] <= first[0] for steps in later))


def _processes_left(runs: Sequence[Run]) -> Measure:
    """Return how many processes still ran when the command had ended, of the run with the most."""
    most = max((run.left_behind for run in runs), key=len)
    return Measure(
        name="processes_left",
        value=float(len(most)),
        better=Better.LOWER,
        said=", ".join(most[:_MOST_NAMES]),
    )


def _directives_missed(run: Run) -> float | None:
    """Return how much of what the command was told it never did."""
    if not run.ledger:
        return None
    return float(sum(line.done_s is None and not line.was_late for line in run.ledger))


def _steps_in_pause(run: Run) -> float | None:
    """Return how many steps were made after the command had said that it stands still."""
    if not run.ledger:
        return None
    return float(sum(_steps_between(run, *pair) for pair in pace.pauses(run.ledger)))


def _steps_between(run: Run, pause: Line, end: Line) -> int:
    """Return how many later steps than that of a pause were seen before its end was told."""
    before = [each.step.step for each in run.steps if each.at_s < end.told_s]
    return sum(pause.step is not None and step > pause.step for step in before)


def _retries(run: Run) -> float | None:
    """Return the retries that the command told, over all its starts."""
    last = {each.start: each.step.retries for each in run.steps if each.step.retries is not None}
    return float(sum(last.values())) if last else None


def _sync_delay_s(run: Run, normal: Run) -> float | None:
    """Return by how much the exchange of gradients took longer, over the steps under faults."""
    usual = _mean(each.step.sync_s for each in normal.steps)
    windows = [(seen.from_s, seen.to_s) for seen in run.faults if seen.to_s > seen.from_s]
    slow = _mean(
        each.step.sync_s
        for each in run.steps
        if not windows or any(from_s <= each.at_s < to_s for from_s, to_s in windows)
    )
    return None if usual is None or slow is None else slow - usual


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _recovery_s(scenario: Scenario, run: Run) -> float | None:
    """Return how long after the last fault throughput was back at half of its normal value."""
    if not scenario.faults:
        return 0.0
    series = _pace(run)
    first_s = min(seen.from_s for seen in run.faults)
    before = mean_between(series, 0.0, first_s)
    if before is None:
        return None
    condition = Condition(_RECOVERED_SHARE * before, None)
    return recovered_after_s(series, _as_it_was(scenario, run), condition, hold_s=0.0)


def _final_loss(run: Run) -> float | None:
    losses = _losses(run.steps)
    return _finite(losses[max(losses)]) if losses else None


# --- Series --------------------------------------------------------------------------------------


def _series(run: Run) -> list[Series]:
    return [
        _pace(run),
        *_told("loss", "", run, lambda each: each.step.loss),
        *_told("sync_s", "s", run, lambda each: each.step.sync_s),
        *spending.timeline(run),
    ]


def _pace(run: Run) -> Series:
    """Return steps a second, in stretches of equal length."""
    end_s = run.steps[-1].at_s if run.steps else 0.0
    bin_s = max(_LEAST_BIN_S, end_s / _MOST_POINTS)
    # Of the last stretch only a part has been seen.
    counts = Counter(int(each.at_s / bin_s) for each in run.steps)
    numbers = range(int(end_s / bin_s))
    return Series(
        name="steps_per_s",
        unit="1/s",
        t_s=[number * bin_s for number in numbers],
        values=[counts[number] / bin_s for number in numbers],
    )


def _told(
    name: str, unit: str, run: Run, value: Callable[[StepSeen], float | None]
) -> list[Series]:
    rows = [(each.at_s, value(each)) for each in run.steps if value(each) is not None]
    if not rows:
        return []
    rows = rows[:: max(1, len(rows) // _MOST_POINTS)]
    values = [None if v is None or not math.isfinite(v) else v for _, v in rows]
    return [Series(name=name, unit=unit, t_s=[at_s for at_s, _ in rows], values=values)]


def _span(seen: FaultSeen) -> Span:
    said = f"{_quantity(seen.fault)} {seen.why_not}".strip()
    return Span(name=str(seen.fault.kind), from_s=seen.from_s, to_s=seen.to_s, said=said)


def _quantity(fault: Fault) -> str:
    needed, more = QUANTITIES[fault.kind]
    given = [(name, getattr(fault, name)) for name in (*needed, *more)]
    # That a killed command is started again goes without saying.
    return ", ".join(f"{name} {value}" for name, value in given if value not in (None, True))


def _log(runs: Sequence[Run]) -> str:
    """Return the end of the worst run's log, and how its starts ended."""
    run = max(runs, key=_failed_exits)
    codes = ", ".join(map(str, run.exits)) or "none"
    late = "; it was ended as its time was over" if run.timed_out else ""
    return f"{run.log.rstrip()}\n[{run.starts} starts; exit codes: {codes}{late}]"


def _digest(run: Run) -> str:
    """Return a digest that tells runs apart: of the loss of each step, and the checkpoints."""
    told = [sorted(_losses(run.steps).items()), sorted(run.checkpoints.digests.items())]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()
