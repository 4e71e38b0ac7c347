"""What the page of a job says would start it, with the real solver: applied, the job starts."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.jobs import submission
from admission.jobs.models import Phase
from headroom.jobs import reading
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_project
from tests.html import html_of
from tests.integration.admission.cycle.scenes import cycle, idle_fleet, phase_of
from tests.integration.dashboard.test_throttle_page import text_of
from tests.unit.headroom.jobs.specs import make_phase, make_spec


@pytest.fixture(autouse=True)
def fleet() -> SmallFleet:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    return idle_fleet()


def changes_of(html: str) -> list[str]:
    found = re.findall(r'name="change" value="([^"]+)"', html)
    return [each.replace("&quot;", '"') for each in found]


def test_each_fix_that_is_offered_starts_the_job_once_it_is_applied(fleet: SmallFleet) -> None:
    user = make_user(Role.OPERATOR)
    make_project("vision")
    spec = make_spec(make_phase(gang={"gpus": 20}, power={"expected_peak_w": 500.0}), name="large")
    submission.submit(reading.convert(spec), user, now=timezone.now())
    cycle()
    operator = Client()
    operator.force_login(user)
    page = html_of(operator.get("/jobs/large/"))
    assert "Starts now with " in text_of(page)
    (change, *_) = changes_of(page)
    assert json.loads(change)["gpus"] < 20
    listed = fixes_in_the_queue(operator)
    assert "of its 20 GPUs" in listed
    answer = operator.post("/jobs/large/apply", {"change": change}, follow=True)
    assert "large/train is amended" in text_of(html_of(answer))
    assert cycle().admitted == 1
    assert phase_of("large").state == Phase.State.STARTING
    text = text_of(html_of(operator.get("/jobs/large/")))
    assert f"large is about to begin on {json.loads(change)['gpus']} GPUs in oslo" in text


def fixes_in_the_queue(client: Client) -> str:
    client.get("/live/queue/fixes")
    return text_of(html_of(client.get("/queue/")))
