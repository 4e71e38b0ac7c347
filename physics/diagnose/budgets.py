"""Which overhead is over its budget?"""

from __future__ import annotations

from physics.diagnose.answer import (
    Diagnosis,
    OneShare,
    Steps,
    quantity,
    question,
    require_kind,
)
from physics.goodput import (
    BUDGET_CAUSES,
    LEVERS,
    TEXTBOOK_BUDGET,
    BudgetComparison,
    LossShares,
    compare_with_budget,
)

__all__ = ["overheads"]


@question
def overheads(
    *,
    pipeline_bubble_share: OneShare = 0.0,
    checkpoint_share: OneShare = 0.0,
    recovery_share: OneShare = 0.0,
    maintenance_share: OneShare = 0.0,
    pause_share: OneShare = 0.0,
    queue_wait_share: OneShare = 0.0,
    unattributed_share: OneShare = 0.0,
    budget: LossShares = TEXTBOOK_BUDGET,
) -> Diagnosis:
    """Diagnose measured losses against a budget: ``excess = measured - budgeted`` of each cause.

    All are shares of the wall time, as :func:`physics.goodput.measure_goodput` gives them. The
    largest excess is the constraint; within the budget, it is the largest loss. Together they are
    at most 1. Source: Fleet Foundations, table 8.
    """
    require_kind("budget", budget, LossShares)
    measured = LossShares(
        pipeline_bubble_share=pipeline_bubble_share,
        checkpoint_share=checkpoint_share,
        recovery_share=recovery_share,
        maintenance_share=maintenance_share,
        pause_share=pause_share,
        queue_wait_share=queue_wait_share,
        unattributed_share=unattributed_share,
    )
    found = compare_with_budget(measured=measured, budget=budget)
    steps = Steps()
    excess = _excesses(steps, measured, budget)
    _show_goodput(steps, measured, found)
    figures = {"goodput": found.goodput, "budgeted_goodput": found.budgeted_goodput}
    figures |= {f"{cause}_excess_share": each for cause, each in excess.items()}
    constraint, verdict, lever = _judge(measured, found)
    return Diagnosis(constraint, verdict, lever, figures, tuple(steps.lines))


def _excesses(steps: Steps, measured: LossShares, budget: LossShares) -> dict[str, float]:
    """Return and show the excess of each cause that is measured or budgeted."""
    excess = {}
    for cause in BUDGET_CAUSES:
        lost, allowed = measured.of(cause), budget.of(cause)
        if lost or allowed:
            excess[cause] = lost - allowed
            numbers = f"{quantity(lost, '%')} - {quantity(allowed, '%')}"
            name = cause.replace("_", " ")
            steps.add(name, "measured - budget", numbers, excess[cause], "points")
    return excess


def _show_goodput(steps: Steps, measured: LossShares, found: BudgetComparison) -> None:
    losses = [measured.of(cause) for cause in BUDGET_CAUSES if measured.of(cause)]
    numbers = " - ".join(["100 %", *(quantity(each, "%") for each in losses)])
    steps.add("goodput", "1 - all losses", numbers, found.goodput, "%")


def _judge(measured: LossShares, found: BudgetComparison) -> tuple[str, str, str]:
    """Return constraint, verdict and lever."""
    goodput, planned = quantity(found.goodput, "%"), quantity(found.budgeted_goodput, "%")
    if found.over:
        worst = found.over[0]
        more = quantity(found.excess_shares[0], "points")
        others = ", ".join(each.replace("_", " ") for each in found.over[1:])
        verdict = f"{worst.replace('_', ' ')} is {more} over its budget; goodput {goodput}, "
        verdict += f"budgeted {planned}" + (f"; also over: {others}" if others else "")
        return worst.replace("_", " "), verdict, _sentence(LEVERS[worst])
    verdict = f"every loss is within its budget; goodput {goodput}, budgeted {planned}"
    largest = max(BUDGET_CAUSES, key=measured.of)
    if not measured.of(largest):
        return "none", verdict, "Nothing is lost: nothing to do."
    lever = f"Nothing has to be done. The largest loss is next: {LEVERS[largest]}."
    return largest.replace("_", " "), verdict, lever


def _sentence(lever: str) -> str:
    return f"{lever[0].upper()}{lever[1:]}."
