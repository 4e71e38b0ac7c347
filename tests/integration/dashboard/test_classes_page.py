"""The page of classes and quota."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from admission.allocation import open_attempts
from admission.jobs import classes
from admission.jobs.catalog import CLASSES
from admission.jobs.models import Project
from admission.policy.catalog import POLICIES
from fleet import snapshot
from tests.builders.accounts import make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job, make_project
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/classes/"


@pytest.fixture(autouse=True)
def fleet(small: SmallFleet) -> None:
    open_attempts.invalidate()
    snapshot.invalidate()


def opened(client: Client, path: str = URL) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return html_of(response)


def card_of(html: str, name: str) -> str:
    start = html.index(f'id="class-{name}-title"')
    return text_of(html[start : html.index("</article>", start)])


def line_of(html: str, name: str) -> str:
    start = html.index(f'title="{name}"')
    return text_of(html[start - 1 : html.index("</tr>", start)])


def test_without_a_project_it_says_how_one_is_made(viewer: Client) -> None:
    html = opened(viewer)
    assert "No project yet" in text_of(html)
    assert "/api/v1/projects" in html


def test_all_classes_are_told_the_most_urgent_first(viewer: Client) -> None:
    html = opened(viewer)
    found = re.findall(r'<h3 class="clip" id="class-([\w-]+)-title"', html)
    assert set(found) == set(classes.built_in())
    assert found[0] == "latency-sensitive-inference-build"
    card = card_of(html, "high-density-training")
    assert "priority 10" in card
    assert "gives way" in card
    assert "built in" in card
    assert "by grant" not in card
    assert "by grant" in card_of(html, "latency-sensitive-inference-build")
    assert "max slowdown 15 %" in card
    assert "interval 30 min" in card
    assert "cross site optional" in card


def test_a_class_says_what_of_it_waits_and_runs(viewer: Client) -> None:
    for number in range(2):
        make_job(f"j{number}", job_class="checkpoint-heavy", reason="StorageHeadroom")
    busy = make_job("busy", job_class="checkpoint-heavy", state="running")
    make_attempt(busy.phases.get(), {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    card = card_of(opened(viewer), "checkpoint-heavy")
    assert "running 1 of 200" in card
    assert "GPUs 4" in card
    assert "waiting 2, 38 min" in card
    assert "StorageHeadroom 2 of 2" in card


def test_a_class_at_its_cap_and_one_that_was_written_anew_are_told(viewer: Client) -> None:
    text = classes.built_in_text("checkpoint-heavy").replace("max_running: 200", "max_running: 1")
    put_in_force(CLASSES, text, author="eva")
    make_job("busy", job_class="checkpoint-heavy", state="running")
    html = opened(viewer)
    assert "1 class at its cap: checkpoint-heavy" in text_of(html)
    card = card_of(html, "checkpoint-heavy")
    assert "at its cap" in card
    assert "v1" in card
    assert "by eva" in html


def test_a_project_is_held_against_its_quota_and_its_share(viewer: Client) -> None:
    make_project("speech", weight=3.0)
    vision = make_project("vision", weight=1.0, gpu_quota=4, power_quota_w=12_000.0)
    Project.objects.filter(pk=vision.pk).update(used_gpu_s=3600.0)
    busy = make_job("busy", state="running")
    make_attempt(busy.phases.get(), {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    make_job("next", reason="QuotaExceeded")
    html = opened(viewer)
    assert "2 projects · 1 project at its quota: vision" in text_of(html)
    line = line_of(html, "vision")
    assert "4 of 4" in line
    assert "3.0 of 12.0" in line
    assert "100 % of 25 % due" in line
    assert "QuotaExceeded 1" in line
    assert "0 % of 75 % due" in line_of(html, "speech")


STATED = """\
name: lab
shares:
  organizations: {research: {weight: 3}}
projects:
  vision: {organization: research, weight: 2, gpu_quota: 2, cohort: lab, may_borrow: 6}
  speech: {gpu_quota: 6, cohort: lab}
"""


def test_what_the_policy_states_of_a_project_is_told_with_what_it_borrows(viewer: Client) -> None:
    for name in ("vision", "speech"):
        make_project(name)
    put_in_force(POLICIES, STATED)
    job = make_job("one", state="running")
    make_attempt(job.phases.get(), {"oslo-a01-n1": range(3)}, racks=["oslo/A01"])
    open_attempts.invalidate()
    html = opened(viewer)
    line = line_of(html, "vision")
    assert "3 of 2 1 borrowed in lab" in line
    assert "of 75 % due" in line
    assert "2 in research" in line
    assert "6 GPUs at most" in html


def test_who_submits_jobs_sees_the_own_projects_and_the_others_together() -> None:
    user = make_user(Role.ML_USER)
    make_project("speech").members.add(user)
    busy = make_job("busy", project="vision", state="running")
    make_attempt(busy.phases.get(), {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    client = Client()
    client.force_login(user)
    html = opened(client)
    assert "vision" not in html
    assert "1 project of yours, 1 of others" in text_of(html)
    assert "1 project of others 1 0 4 GPUs" in text_of(html)


def test_a_poll_answers_nothing_while_nothing_changed(viewer: Client) -> None:
    make_project("vision")
    (path,) = re.findall(r'hx-get="(/live/classes\?[^"]+)"', opened(viewer))
    assert viewer.get(path).status_code == 204
    make_job("next")
    assert viewer.get(path).status_code == 200


def test_many_projects_cost_the_same(viewer: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(40):
        make_project(f"p{number:02}")
    opened(viewer)
    with django_assert_max_num_queries(10):
        opened(viewer)
