"""Rollouts on the twin: a bad image, a bad driver and a harmless change, each beside all at once.

The rule, written before any of the seeds below was played: seeds 10,000 to 10,199, each with its
own fleet of 512 GPUs whose jobs come and go; development had seeds below 1,000. One and a half
hours of readings go before each change. A rollout changes a quarter of the racks, then half, then
all, and judges the first two steps; a step soaks for 20 min at least and 90 min at most. Stated are
5 % for rolling a harmless change back (alpha), and 5 % for promoting to all racks what is worse by
what matters in any guard (beta). The bad image draws 3 % more; under the bad driver one step in 500
takes three times as long. A change made all at once is judged by the same guards at the same
levels, before against after, since nothing is left to compare it with.

``python -m bench rollouts`` plays all of it; ``ROLLOUTS_SEEDS=20`` only the first 20.
``ROLLOUTS_PLAYED`` names a file to which each seed is added as it ends, and whose seeds are not
played again: the next run goes on from there.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import report
from bench.rollouts_twin import BLOCK_S, Change, Plant, Seen, evidence_of
from policies.rollouts.arms import choose
from policies.rollouts.evidence import MEANS, blocks_of, measured, paired
from policies.rollouts.judging import Counts, Guard, GuardState, Judgement, Verdict, judge

__all__ = ["CHANGES", "Outcome", "play", "run"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

FIRST_SEED, SEEDS = 10_000, 200
ALPHA = BETA = 0.05
SHARES = (0.25, 0.5)
WARM_UP_S, BEFORE_S, SOAK_S, LONGEST_S = 900.0, 5400.0, 1200.0, 5400.0

#: What matters, as a reviewer would say it: a share of step time, power, time or bytes, °C.
GUARDS = (
    Guard("step_time", 0.02),
    Guard("slow_steps", 0.0015),
    Guard("throttling", 0.01),
    Guard("power", 0.02),
    Guard("temperature", 2.0),
    Guard("xids", None),
    Guard("goodput", 0.05),
    Guard("checkpoint_bytes", 0.05),
)
HARMLESS = Change("harmless")
CHANGES = (
    Change("bad_image", draw_factor=1.03),
    Change("bad_driver", hang_share=1 / 500, hang_times=3.0),
    HARMLESS,
)


@dataclass(frozen=True)
class Outcome:
    """How a change ended: what was decided last, by which guards, when, and what it cost."""

    seed: int
    change: str
    all_at_once: bool
    verdict: str
    guards: tuple[str, ...]
    step: int
    #: from the begin of the change to the end of taking it back; of what is not, to the verdict
    seconds: float
    #: GPU-hours of jobs on what had the change
    changed_gpu_h: float


def play(seed: int) -> list[Outcome]:
    """Play all changes on the fleet of one seed."""
    plant = Plant(seed)
    plant.go(WARM_UP_S + BEFORE_S)
    found = [_rollout(copy.deepcopy(plant), change, seed) for change in CHANGES]
    # Of a harmless one there is nothing to harm.
    bad = [change for change in CHANGES if change is not HARMLESS]
    return found + [_at_once(copy.deepcopy(plant), change, seed) for change in bad]


def _rollout(plant: Plant, change: Change, seed: int) -> Outcome:
    before, began_s = _before(plant), plant.now_s
    racks = plant.alike()
    changed = np.zeros(plant.racks, np.bool_)
    for step, share in enumerate(SHARES, start=1):
        gpus = share * racks.gpus.sum() - racks.gpus[changed].sum()
        racks.eligible[:] = ~changed
        changed = changed | choose(racks, gpus=gpus, seed=seed).canary
        arm = changed.copy()

        def verdict(after: Sequence[Seen], arm: Bools = arm) -> Judgement:
            seen, past, units, counts = evidence_of(list(after), before[: len(after)], arm, ~arm)
            means, _ = blocks_of(seen, past, units)
            return _judged(means, counts, len(after), len(SHARES))

        found = _soak(plant, changed, change, verdict)
        if found.verdict is not Verdict.PROMOTE:
            return _ended(plant, changed, change, found, seed, step=step, began_s=began_s)
    return _ended(plant, changed, change, found, seed, step=len(SHARES), began_s=began_s)


def _at_once(plant: Plant, change: Change, seed: int) -> Outcome:
    """Change all racks at once, and compare what is with what was."""
    before, began_s = _before(plant), plant.now_s
    every = np.ones(plant.racks, np.bool_)

    def verdict(after: Sequence[Seen]) -> Judgement:
        earlier = before[: len(after)]
        seen, past, units, now = evidence_of(list(after), earlier, every, ~every)
        then = evidence_of(earlier, earlier, every, ~every)[3]
        counts = {name: _beside(now[name], then[name]) for name in now}
        values = paired(*measured(seen, past, units))
        weight = np.where(np.isfinite(values), units.gpus[:, None], 0.0)
        total = weight.sum(axis=1)
        sums = (weight * np.nan_to_num(values)).sum(axis=1)
        mean = np.divide(sums, total, out=np.full_like(total, np.nan), where=total > 0.0)
        return _judged(dict(zip(MEANS, mean.T, strict=True)), counts, len(after), 1)

    found = _soak(plant, every, change, verdict)
    return _ended(plant, every, change, found, seed, step=0, began_s=began_s)


def _beside(now: Counts, then: Counts) -> Counts:
    """Return the events of now beside those of before."""
    return Counts(now.changed, then.changed, now.changed_exposure, then.changed_exposure)


def _before(plant: Plant) -> list[Seen]:
    """Return the blocks before the change, the last first."""
    return plant.blocks[: -round(BEFORE_S / BLOCK_S) - 1 : -1]


def _judged(
    means: dict[str, Array], counts: dict[str, Counts], blocks: int, steps: int
) -> Judgement:
    return judge(
        GUARDS, means, counts, alpha=ALPHA, beta=BETA, steps=steps,
        soaked=blocks * BLOCK_S >= SOAK_S, is_over=blocks * BLOCK_S >= LONGEST_S,
    )  # fmt: skip


def _soak(
    plant: Plant, racks: Bools, change: Change, verdict: Callable[[Sequence[Seen]], Judgement]
) -> Judgement:
    """Change what is not changed yet, and look after each block until something is decided."""
    plant.change(racks & np.array([each is not change for each in plant.has]), change)
    while not plant.reports(racks, change):
        plant.go(BLOCK_S)
    first = len(plant.blocks)
    while True:
        plant.go(BLOCK_S)
        found = verdict(plant.blocks[first:])
        if found.verdict is not Verdict.WAIT:
            return found


def _ended(
    plant: Plant, racks: Bools, change: Change, found: Judgement, seed: int, *, step: int,
    began_s: float,
) -> Outcome:  # fmt: skip
    """Take a change back where that was decided, and say how it ended."""
    if found.verdict is Verdict.ROLL_BACK:
        plant.change(racks, None)
        while not plant.reports(racks, None):
            plant.go(BLOCK_S)
    guards = _telling(found)
    return Outcome(
        seed, change.name, step == 0, found.verdict.value, guards, step,
        plant.now_s - began_s, plant.harmed_gpu_h,
    )  # fmt: skip


def _telling(found: Judgement) -> tuple[str, ...]:
    """Return the guards for which a change was taken back, or held."""
    state = GuardState.WORSE if found.verdict is Verdict.ROLL_BACK else GuardState.OPEN
    return tuple(
        each.guard.metric
        for each in found.findings
        if each.state is state and found.verdict is not Verdict.PROMOTE
        if state is GuardState.WORSE or each.guard.matters is not None
    )


def run() -> None:
    count = int(os.environ.get("ROLLOUTS_SEEDS", SEEDS))
    processes = int(os.environ.get("BENCH_PROCESSES", os.cpu_count() or 1))
    played = os.environ.get("ROLLOUTS_PLAYED", "")
    outcomes = _outcomes(count, processes, Path(played) if played else None)
    figures: dict[str, Any] = {"seeds": count, "first_seed": FIRST_SEED}
    figures |= {"alpha": ALPHA, "beta": BETA, "gpus": int(Plant(0).fleet.gpu_count)}
    for change in CHANGES:
        for prefix, all_at_once in (("", False), ("all_at_once_", True)):
            of = [o for o in outcomes if o.change == change.name and o.all_at_once is all_at_once]
            if of:
                figures |= {f"{prefix}{change.name}_{k}": v for k, v in _summed(of).items()}
    report.show("rollouts", figures, _NOTES)
    if count == SEEDS:
        report.keep("rollouts", figures)


def _outcomes(count: int, processes: int, played: Path | None) -> list[Outcome]:
    """Play the seeds that ``played`` does not have yet, and add them to it."""
    found = [] if played is None or not played.exists() else _read(played)
    done = {each.seed for each in found}
    left = [seed for seed in range(FIRST_SEED, FIRST_SEED + count) if seed not in done]
    with ProcessPoolExecutor(processes) as pool:
        for outcomes in pool.map(play, left):
            found += outcomes
            if played is not None:
                with played.open("a") as out:
                    out.write(json.dumps([asdict(each) for each in outcomes]) + "\n")
    return [each for each in found if each.seed < FIRST_SEED + count]


def _read(played: Path) -> list[Outcome]:
    lines = map(json.loads, played.read_text().splitlines())
    return [Outcome(**{**each, "guards": tuple(each["guards"])}) for line in lines for each in line]


def _summed(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return shares of the verdicts, the medians of time and cost, and which guards told."""
    found: dict[str, Any] = {}
    for verdict in (Verdict.ROLL_BACK, Verdict.PROMOTE, Verdict.HOLD):
        of = [each for each in outcomes if each.verdict == verdict]
        found[f"{verdict}_share"] = len(of) / len(outcomes)
        if of:
            found[f"{verdict}_median_s"] = float(np.median([each.seconds for each in of]))
    found["changed_gpu_h_median"] = float(np.median([each.changed_gpu_h for each in outcomes]))
    told = [guard for each in outcomes for guard in each.guards]
    for guard in sorted(set(told)):
        found[f"told_by_{guard}"] = told.count(guard)
    return found


_NOTES = {
    "harmless_roll_back_share": "false alarms: to be at most alpha",
    "bad_image_promote_share": "false promotions: to be at most beta",
    "bad_driver_promote_share": "false promotions: to be at most beta",
    "bad_image_roll_back_median_s": "from the begin of the change to all racks being as before",
    "bad_image_changed_gpu_h_median": "GPU-hours of jobs on the change",
    "all_at_once_bad_image_changed_gpu_h_median": "the same where all racks are changed at once",
}
