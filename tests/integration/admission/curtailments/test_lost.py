"""The work that a curtailment took of jobs, by what throttled and what stood still."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from admission.curtailments import judging
from admission.curtailments.models import Curtailment
from admission.directives.models import Directive
from admission.jobs.models import Attempt
from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from tests.integration.admission.curtailments.conftest import Metering
from tests.integration.admission.curtailments.test_api import past
from tests.integration.admission.directives.scenes import RACK

pytestmark = pytest.mark.django_db


@pytest.fixture
def held(job: Attempt, metering: Metering) -> Curtailment:
    """A curtailment of ten minutes while a job ran on four nodes."""
    Attempt.objects.filter(pk=job.pk).update(dispatched_at=timezone.now() - timedelta(hours=1))
    return past(metering, drawn_w=8_900.0)


def lost_gpu_h(row: Curtailment) -> float:
    assert judging.judge_due(timezone.now()) == 1
    row.refresh_from_db()
    return float(row.result["lost_gpu_h"])


def throttled(node: str, since: datetime, seconds: float, share: float) -> None:
    """Have a GPU lose so much of its clock at its power limit."""
    until = since + timedelta(seconds=seconds)
    ThrottleEvent.objects.create(
        gpu=Gpu.objects.get(node__name=node, index=0), cause=ThrottleCause.SW_POWER_CAP,
        opened_at=since, updated_at=until, closed_at=until, usual_mhz=1_000.0,
        lost_mhz_s=share * seconds * 1_000.0, expected=True,
    )  # fmt: skip


def test_caps_take_what_clocks_lose_at_them(held: Curtailment, fleet: Any) -> None:
    throttled(fleet.nodes_of(RACK)[0], held.starts_at, 300.0, 0.4)
    assert lost_gpu_h(held) == pytest.approx(0.4 * 300.0 / 3600.0, abs=1e-3)


def test_what_was_lost_as_much_before_is_not_lost_by_it(held: Curtailment, fleet: Any) -> None:
    throttled(fleet.nodes_of(RACK)[0], held.starts_at - timedelta(seconds=600), 1_200.0, 0.4)
    assert lost_gpu_h(held) == 0.0


def test_what_stands_still_loses_all(held: Curtailment, job: Attempt) -> None:
    until = held.starts_at + timedelta(seconds=60)
    Directive.objects.create(
        attempt=job, kind=Directive.Kind.PAUSE, owner="controller", cause="power", reason="cold",
        issued_at=held.starts_at, expires_at=until, applied_at=held.starts_at, undone_at=until,
        ended_at=until,
    )  # fmt: skip
    gpus = sum(map(len, job.placement["gpus"].values()))
    assert lost_gpu_h(held) == pytest.approx(gpus * 60.0 / 3600.0, abs=1e-3)


def test_what_others_lose_elsewhere_is_not_counted(held: Curtailment, fleet: Any) -> None:
    free = next(node for node in fleet.nodes if node not in fleet.nodes_of(RACK))
    throttled(free, held.starts_at, 300.0, 0.4)
    assert lost_gpu_h(held) == 0.0
