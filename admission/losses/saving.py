"""How often gangs that run should save, by the hours of baselines and live failure rates."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import Avg

from admission.baselines.models import GangHour
from admission.core import outlook
from admission.core.losses import Interval
from admission.core.outlook import GpuRate
from admission.failures import reading as failures
from admission.failures.grouping import rate_of
from admission.goodput.summing import Asked
from admission.jobs import first_steps
from admission.jobs.models import Attempt
from admission.jobs.resolution import request_of

__all__ = ["MOST_GANGS", "intervals"]

#: Of so many gangs at most it is reckoned, those with the most GPUs: each takes some queries.
MOST_GANGS = 40
#: What a save takes is the mean of so much of the time before now, s.
_MEASURED_S = 86_400.0


def intervals(asked: Asked, now: float) -> tuple[list[Interval], int]:
    """Return how often gangs that run should save, and how many gangs are left out.

    Those of what is asked for, of which it is known what a save takes, and how often GPUs fail.
    Two queries, up to five for each gang, and nine where failures were not looked at lately. Raises
    :class:`ParameterError` where there are too many of these.
    """
    saves = _save_s(asked, now)
    running = Attempt.objects.filter(pk__in=saves, started_at__isnull=False).open()
    gangs = sorted(running.select_related("phase__job__project"), key=lambda each: -_gpus(each))
    if not gangs:
        return [], 0
    observed = failures.recent(now)
    rates: dict[tuple[str, ...], GpuRate | None] = {}
    found = []
    for attempt in gangs[:MOST_GANGS]:
        models = request_of(attempt.phase).models
        if models not in rates:
            rates[models] = rate_of(observed, models)
        if (rate := rates[models]) is not None:
            found.append(_interval(attempt, rate, saves[attempt.pk]))
    return [each for each in found if each is not None], max(len(gangs) - MOST_GANGS, 0)


def _save_s(asked: Asked, now: float) -> dict[int, float]:
    """Return what a save took lately at most, s, by the key of attempts. One query."""
    rows = GangHour.objects.filter(
        hour__gte=datetime.fromtimestamp(now - _MEASURED_S, UTC), save_s__isnull=False,
        **asked.only,
    )  # fmt: skip
    if asked.projects is not None:
        rows = rows.filter(project__in=asked.projects)
    return dict(rows.values_list("attempt_id").annotate(Avg("save_s")).order_by())


def _interval(attempt: Attempt, rate: GpuRate, save_s: float) -> Interval | None:
    """Return the advice for a gang; None where it no longer saves, or not as it did."""
    period_s = request_of(attempt.phase).checkpoint_interval_s
    if period_s is None or period_s <= save_s:
        return None
    start = first_steps.start_of(attempt)
    advice = outlook.advise(
        rate, _gpus(attempt), save_s=save_s, interval_s=period_s - save_s,
        restart_s=0.0 if start is None else start.s,
    )  # fmt: skip
    return Interval(f"{attempt.phase.job.name}/{attempt.phase.name}", _gpus(attempt), advice)


def _gpus(attempt: Attempt) -> int:
    return sum(map(len, attempt.placement.get("gpus", {}).values()))
