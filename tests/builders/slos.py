"""Objectives, and events that were judged by them."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from admission.slos.actions import SLOS
from admission.slos.models import ConditionSample, Slo, SloJudgment
from tests.builders.documents import put_in_force

_TEXT = """\
name: {name}
description: Where there is power, dense training does not wait for long.
measure: start
target: 0.9
within: 10m
when: power_headroom > 0.2
"""


def make_slo(name: str = "training-begins") -> Slo:
    """Declare that 90 % begin within 10 min while there is power."""
    return put_in_force(SLOS, _TEXT.format(name=name))


def make_judged(slo: Slo, *, good: int = 0, bad: int = 0, project: str = "vision") -> list[str]:
    """Have events been judged just now, each of a job of its own; return the jobs' names."""
    made = slo.judgments.count()
    names = [f"{slo.name}-{made + number}" for number in range(good + bad)]
    SloJudgment.objects.bulk_create(
        SloJudgment(
            slo=slo, event=f"{name}/train", is_good=number < good, at=timezone.now(),
            clock_s=120.0 if number < good else 600.0, limit_s=600.0, job=name, phase="train",
            job_class="high-density-training", project=project,
        )
        for number, name in enumerate(names)
    )  # fmt: skip
    return names


def make_sampled(minutes: int, **power_headroom: float) -> None:
    """Have the power headroom of sites been so for as long.

    A worker that runs beside may have sampled this minute already.
    """
    now = timezone.now().replace(second=0, microsecond=0)
    ConditionSample.objects.bulk_create(
        (
            ConditionSample(at=now - timedelta(minutes=minute), site=site, power_headroom=left)
            for site, left in power_headroom.items()
            for minute in range(minutes)
        ),
        ignore_conflicts=True,
    )
