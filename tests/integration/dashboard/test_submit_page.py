"""The page on which jobs are submitted: rights, faults, dry runs, and what is kept."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from django.test import Client
from pytest_django import Settings

from accounts.models import AuditEntry, User
from accounts.roles import Role
from admission.jobs.models import Job, Project
from tests.builders.accounts import client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_job
from tests.html import html_of
from tests.integration.admission.cycle.scenes import idle
from tests.integration.dashboard.test_throttle_page import text_of
from tests.unit.headroom.jobs.specs import make_phase, make_spec

URL = "/jobs/_new/"
CHECK = "/jobs/_check"
DRY_RUN = "/jobs/_dry-run"


@pytest.fixture
def fleet(small: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> SmallFleet:
    monkeypatch.setattr("telemetry.tasks.write.delay", lambda shard: None)
    idle(small)
    return small


@pytest.fixture
def ada(db: None) -> User:
    """An ML user, of the project vision."""
    user = make_user(Role.ML_USER, username="ada")
    Project.objects.create(name="vision").members.add(user)
    return user


@pytest.fixture
def client(ada: User) -> Client:
    made = Client()
    made.force_login(ada)
    return made


def text_for(*phases: dict[str, Any], **given: Any) -> str:
    return yaml.safe_dump(make_spec(*phases, **given), sort_keys=False)


def send(client: Client, text: str, url: str = URL, form: str = "1", status: int = 200) -> str:
    answer = client.post(url, {"text": text, "form": form}, follow=True)
    assert answer.status_code == status
    return html_of(answer)


@pytest.mark.parametrize("url", [URL, CHECK, DRY_RUN])
def test_it_takes_the_right_to_submit(fleet: SmallFleet, url: str) -> None:
    given = {"text": text_for(), "form": "1"}
    assert Client().post(url, given).status_code == 302
    for role in (Role.VIEWER, Role.RESPONDER):
        assert client_of(role).post(url, given).status_code == 403
    assert not Job.objects.exists()


def test_the_queue_leads_there_whoever_may_submit(client: Client, viewer: Client) -> None:
    assert f'href="{URL}"' in html_of(client.get("/queue/"))
    assert f'href="{URL}"' not in html_of(viewer.get("/queue/"))


def test_it_begins_with_a_text_that_can_be_submitted(client: Client, fleet: SmallFleet) -> None:
    html = html_of(client.get(URL))
    assert "It can be submitted to vision, as low-power-experimentation: train on 1 GPU" in (
        text_of(html)
    )
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", client.get(URL).content.decode(), re.S)
    assert found is not None
    send(client, found[1])
    assert Job.objects.get().project.name == "vision"


def test_who_has_no_project_is_told(fleet: SmallFleet) -> None:
    text = text_of(html_of(client_of(Role.ML_USER).get(URL)))
    assert "1 problem" in text
    assert "project" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_job_is_submitted_as_by_the_api_with_its_entry_in_the_audit_log(
    client: Client, fleet: SmallFleet, as_json: bool
) -> None:
    given = make_spec(name="first")
    text = str(given).replace("'", '"') if as_json else yaml.safe_dump(given)
    assert "first is submitted" in text_of(send(client, text.replace("\n", "\r\n")))
    by_page = Job.objects.get()
    api = client.post("/api/v1/jobs", make_spec(name="second"), content_type="application/json")
    assert api.status_code == 201
    by_api = Job.objects.exclude(pk=by_page.pk).get()
    assert by_page.spec == {**by_api.spec, "name": "first"}
    assert by_page.submitted_by == by_api.submitted_by == "ada"
    entries = AuditEntry.objects.filter(action="job.submit").values_list("actor", "target")
    assert set(entries) == {("ada", "first"), ("ada", "second")}


def test_a_button_that_is_pressed_twice_submits_once(client: Client, fleet: SmallFleet) -> None:
    for _ in range(2):
        send(client, text_for())
    assert Job.objects.count() == 1
    # Gone back to, changed, and sent again: another job.
    send(client, text_for(priority=-1))
    send(client, text_for(), form="2")
    assert Job.objects.count() == 3


def test_faults_are_told_with_their_lines_and_nothing_is_kept(
    client: Client, fleet: SmallFleet
) -> None:
    text = text_for(make_phase(gang={"gpus": 8, "models": ["H900"]}))
    for url, status in ((CHECK, 200), (DRY_RUN, 200), (URL, 400)):
        html = send(client, text, url, status=status)
        assert "H900" in text_of(html)
        assert re.search(r'<li data-line="[1-9]\d*"', html), url
    assert not Job.objects.exists()
    assert 'role="alert"' in html
    assert "models" in html, "what was written stays"


def test_a_text_that_is_no_specification_is_refused(client: Client, fleet: SmallFleet) -> None:
    for text in ("", "{", "[1", "a: &a [*a]", "{" * 5000, "x" * 300_000):
        assert "problem" in send(client, text, CHECK)
        assert "problem" in send(client, text, status=400)


def test_the_project_of_others_is_not_open(client: Client, fleet: SmallFleet) -> None:
    Project.objects.create(name="speech")
    html = send(client, text_for(project="speech"), status=400)
    assert "speech" in text_of(html)
    assert not Job.objects.exists()


def test_a_name_that_is_taken_is_told(client: Client, fleet: SmallFleet) -> None:
    make_job("taken")
    html = send(client, text_for(name="taken"), status=400)
    assert "there is a job &#x27;taken&#x27; already" in html


def test_more_than_may_wait_is_told_and_not_taken(
    client: Client, fleet: SmallFleet, settings: Settings
) -> None:
    usual = settings.SUBMISSION_LIMITS
    settings.SUBMISSION_LIMITS = {**usual, "user": {**usual["user"], "max_pending_jobs": 1}}
    send(client, text_for())
    html = send(client, text_for(), form="2", status=400)
    assert "may have 1 pending jobs; it has 1, and this asks for 1" in text_of(html)
    assert Job.objects.count() == 1


def test_a_dry_run_says_what_would_become_of_each_phase_and_keeps_nothing(
    client: Client, fleet: SmallFleet
) -> None:
    few = make_phase("few", gang={"gpus": 4}, power={"expected_peak_w": 500.0})
    many = make_phase("many", gang={"gpus": 90}, needs=["few"])
    text = text_of(send(client, text_for(few, many), DRY_RUN))
    assert "It would start now on 4 GPUs of 1 node at" in text
    assert "As if what it needs had ended well: few" in text
    assert "It would wait, and never start as it is" in text
    assert "the most there are is 48" in text
    assert not Job.objects.exists()


def test_a_job_is_the_start_of_another_one_for_those_who_may_read_it(
    client: Client, fleet: SmallFleet
) -> None:
    send(client, text_for(name="mine", labels={"team": "a"}))
    assert f'href="{URL}?like=mine"' in html_of(client.get("/jobs/mine/"))
    html = html_of(client.get(f"{URL}?like=mine"))
    assert "team: a" in html
    assert "name: mine" not in html
    make_job("theirs", project="speech")
    assert client.get(f"{URL}?like=theirs").status_code == 404
