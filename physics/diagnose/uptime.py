"""How often does the cluster fail, and what does that take from a job?"""

from __future__ import annotations

from typing import Any

from physics import reliability
from physics.diagnose.answer import (
    Diagnosis,
    OneCount,
    OneNonNegative,
    OnePositive,
    Steps,
    quantity,
    question,
)

__all__ = ["failures"]

_DAY_S = 86_400.0


@question
def failures(
    *,
    gpus: OneCount,
    component_mtbf_s: OnePositive,
    work_s: OnePositive,
    checkpoint_s: OneNonNegative,
    restart_s: OneNonNegative,
    queue_wait_s: OneNonNegative = 0.0,
    interval_s: OnePositive | None = None,
    window_s: OnePositive = _DAY_S,
) -> Diagnosis:
    """Answer "how often will it fail?" for a job of ``work_s`` on N GPUs, and what it costs.

    ``M = M_component / N``, ``P = 1 - exp(-T / M)`` in a window (a day, unless given), the best
    checkpoint interval, and the effective training time ratio (ETTR) at ``interval_s``, or at the
    best one where it is not given. The largest cost is the constraint. See
    :mod:`physics.reliability`. Source: Fleet Foundations, failure rates by cluster size.
    """
    steps = Steps()
    mtbf_s, probability, expected = _forecast(steps, gpus, component_mtbf_s, window_s)
    best_s = reliability.optimal_interval_s(checkpoint_s=checkpoint_s, system_mtbf_s=mtbf_s)
    young_s = reliability.young_interval_s(checkpoint_s=checkpoint_s, system_mtbf_s=mtbf_s)
    numbers = f"sqrt(2 · {quantity(checkpoint_s, 's')} · {quantity(mtbf_s, 's')})"
    steps.add("Young's interval", "sqrt(2 · delta · M)", numbers, young_s, "s")
    steps.say(f"best interval (exact, by Lambert's function): {quantity(best_s, 's')}")
    costs: dict[str, Any] = {
        "checkpoint_s": checkpoint_s,
        "restart_s": restart_s,
        "system_mtbf_s": mtbf_s,
        "interval_s": interval_s,
        "queue_wait_s": queue_wait_s,
    }
    run = reliability.expected_run(work_s=work_s, **costs)
    shares = reliability.wall_time_shares(**costs)
    _show_run(steps, mtbf_s, queue_wait_s, run)
    losses = _losses(steps, shares)
    constraint = max(losses, key=lambda each: losses[each])
    lever = _LEVERS[constraint]
    if interval_s is not None:
        lever = _better(steps, interval_s, best_s, costs, run) + lever
    figures = {
        "system_mtbf_s": mtbf_s,
        "failure_probability": probability,
        "expected_failures": expected,
        "best_interval_s": best_s,
        "young_interval_s": young_s,
        "ettr": run.ettr,
        "wall_s": run.wall_s,
        "failures": run.failures,
    }
    verdict = (
        f"a failure every {quantity(mtbf_s, 's')}; {quantity(probability, '%')} chance of one in "
        f"{quantity(window_s, 's')}; the job meets {quantity(run.failures)} and takes "
        f"{quantity(run.wall_s, 's')}, {quantity(run.ettr, '%')} of it useful"
    )
    return Diagnosis(constraint, verdict, lever, figures, tuple(steps.lines))


def _forecast(
    steps: Steps, gpus: float, component_mtbf_s: float, window_s: float
) -> tuple[float, float, float]:
    found = reliability.failure_forecast(
        window_s=window_s, component_mtbf_s=component_mtbf_s, components=gpus
    )
    window, mtbf = quantity(window_s, "s"), quantity(found.system_mtbf_s, "s")
    numbers = f"{quantity(component_mtbf_s, 's')} / {quantity(gpus)}"
    steps.add("M", "M_component / N", numbers, found.system_mtbf_s, "s")
    steps.add("failures in the window", "T / M", f"{window} / {mtbf}", found.expected_failures)
    steps.add("P", "1 - exp(-T / M)", f"1 - exp(-{window} / {mtbf})", found.probability, "%")
    return float(found.system_mtbf_s), float(found.probability), float(found.expected_failures)


def _show_run(
    steps: Steps, mtbf_s: float, queue_wait_s: float, run: reliability.ExpectedRun
) -> None:
    wall, mtbf = quantity(float(run.wall_s), "s"), quantity(mtbf_s, "s")
    numbers = f"{wall} / ({mtbf} + {quantity(queue_wait_s, 's')})"
    steps.add("failures of the job", "wall time / (M + D)", numbers, float(run.failures))


def _losses(steps: Steps, shares: reliability.WallTimeShares) -> dict[str, float]:
    losses = {
        "checkpoint": float(shares.checkpoint_share),
        "rework": float(shares.rework_share),
        "restart": float(shares.restart_share),
        "queue wait": float(shares.queue_wait_share),
    }
    named = ", ".join(f"{name} {quantity(share, '%')}" for name, share in losses.items())
    useful = float(shares.useful_share)
    steps.say(f"wall time: useful {quantity(useful, '%')}, {named}")
    numbers = " - ".join(["100 %", *(quantity(share, "%") for share in losses.values())])
    steps.add("useful", "1 - all losses", numbers, useful, "%")
    return losses


def _better(
    steps: Steps,
    interval_s: float,
    best_s: float,
    costs: dict[str, Any],
    run: reliability.ExpectedRun,
) -> str:
    """Say what the best interval would bring, where the given one loses more than a point."""
    at_best = reliability.ettr(**(costs | {"interval_s": best_s or None}))
    gain = at_best - float(run.ettr)
    at_given = quantity(float(run.ettr), "%")
    numbers = f"{quantity(at_best, '%')} - {at_given}"
    steps.add("gain of the best interval", "ETTR(best) - ETTR", numbers, gain, "points")
    if gain <= _WORTH:
        return ""
    often = "more" if best_s < interval_s else "less"
    return (
        f"Checkpoint {often} often: every {quantity(best_s, 's')} instead of "
        f"{quantity(interval_s, 's')} gives {quantity(at_best, '%')}. "
    )


#: A gain in ETTR that is worth a change.
_WORTH = 0.01
_LEVERS = {
    "checkpoint": "Make checkpoints cheaper: asynchronous, sharded, to faster storage.",
    "rework": "Make checkpoints cheaper, so that they can be taken more often.",
    "restart": "Make restarts faster: notice failures sooner, keep spare nodes warm.",
    "queue wait": "Let restarts go before new jobs, or hold spare nodes for them.",
}
