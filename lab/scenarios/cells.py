"""Cells of a matrix from runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from lab.matrix.expect import Told, judge
from lab.matrix.result import (
    Cell,
    Check,
    Measure,
    Verdict,
    verdict_of_checks,
    why_of_checks,
)
from lab.matrix.scenario import Scenario
from lab.scenarios.faults import spans
from lab.scenarios.measures import against, in_order
from lab.scenarios.played import Played
from lab.spread import Ended

__all__ = ["cell_of", "not_run"]

A = TypeVar("A")


def not_run(scenario: Scenario, seed: int, why: str) -> Cell:
    """Return the cell of a scenario that cannot be played here."""
    return Cell(
        scenario=scenario.name,
        title=scenario.title,
        seed=seed,
        verdict=Verdict.NOT_RUN,
        why=why,
        spans=spans(scenario),
    )


def cell_of(
    scenario: Scenario,
    seed: int,
    runs: Sequence[Ended[A, Played]],
    baseline: Ended[A, Played],
) -> Cell:
    """Return the cell of the repeats of one run; the first of them is the one that is judged."""
    played = [each.result for each in runs if each.result is not None]
    wall_s = sum(each.wall_s for each in runs)
    if baseline.result is None or len(played) < len(runs):
        broken = next(each for each in (*runs, baseline) if each.result is None)
        return Cell(
            scenario=scenario.name,
            title=scenario.title,
            seed=seed,
            verdict=Verdict.ERROR,
            why=broken.error,
            spans=spans(scenario),
            log=broken.told,
            wall_s=wall_s,
        )
    first = played[0]
    measures = [*first.measures, *against(first, baseline.result, scenario), _spread(played)]
    by_name = {each.name: each for each in measures}
    told = Told({each.name: each for each in first.series}, by_name)
    checks = [*judge(scenario, told), *_deterministic(played)]
    return Cell(
        scenario=scenario.name,
        title=scenario.title,
        seed=seed,
        verdict=verdict_of_checks(checks),
        why=why_of_checks(checks),
        checks=checks,
        measures=in_order(measures),
        series=list(first.series),
        spans=spans(scenario),
        log=first.log,
        digest=first.digest,
        simulated_s=scenario.duration_s,
        wall_s=wall_s,
    )


def _deterministic(runs: Sequence[Played]) -> Iterator[Check]:
    """Say whether repeats with one seed made the same decisions and ended in the same state."""
    text = "repeats with the same seed come to the same decisions and the same end"
    if len(runs) < 2:
        return
    digests = {each.digest for each in runs}
    if len(digests) == 1:
        said = f"{len(runs)} runs, {runs[0].digest[:12]} each"
        yield Check(text=text, verdict=Verdict.PASSED, said=said)
        return
    said = f"{len(digests)} different ends of {len(runs)} runs"
    yield Check(text=text, verdict=Verdict.FAILED, said=said)


def _spread(runs: Sequence[Played]) -> Measure:
    """Return how far the work done by repeats lies apart, as a share of the most."""
    work = [each.work_gpu_s for each in runs]
    value = (max(work) - min(work)) / max(work) if len(work) > 1 and max(work) > 0 else None
    said = f"work done, over {len(runs)} runs" if len(work) > 1 else "it was run once"
    return Measure(name="repeat_spread_share", value=value, unit="share", said=said)
