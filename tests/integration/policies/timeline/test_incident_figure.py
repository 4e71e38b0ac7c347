"""The figure of an incident has its places, its time, and what was done about it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.roles import Role
from policies.incidents import actions
from policies.incidents.models import Incident
from telemetry.models import XidEvent
from tests.builders.accounts import api_client, make_user
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.policies import make_playbook, make_run, open_incident

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    """Racks that were read for ten minutes, each of their GPUs at 400 W, those of A02 at 500."""
    small, now = small_fleet(), timezone.now().timestamp()
    for ago in range(600, 0, -60):
        small.report(at=now - ago, power_w=lambda node, _: 500.0 if "a02" in node else 400.0)
    return small


def ask(
    incident: Incident, params: Mapping[str, str] | None = None, *, status: int = 200
) -> dict[str, Any]:
    url = f"/api/v1/incidents/{incident.number}/figure"
    answer = api_client(Role.OPERATOR).get(url, params or {})
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def known(found: Mapping[str, Any], key: str, column: str) -> set[float]:
    (row,) = [each for each in found["rows"] if each["key"] == key]
    return {value for value in row["columns"][column] if value is not None}


def test_rows_are_of_its_places_alone(fleet: SmallFleet) -> None:
    found = ask(open_incident("rack oslo/A01"))
    assert known(found, "power", "power_w_max") == {400.0}
    assert found["rows"][0]["title"] == "Power of rack oslo/A01"
    assert found["rows"][0]["lines"][1]["value"] == 12_000.0
    assert "Fan speed" in [each["title"] for each in found["absent"]]
    both = ask(open_incident("rack oslo/A01", "rack oslo/A02", rule="both-hot"))
    assert known(both, "power", "power_w_min") == {400.0}
    assert known(both, "power", "power_w_max") == {500.0}


def test_it_begins_before_it_fired_and_ends_after_it_was_resolved(fleet: SmallFleet) -> None:
    incident = open_incident()
    found = ask(incident)
    since = incident.members.get().since.timestamp()
    assert (found["start"] <= since - 600.0, found["live"]) == (True, True)
    resolved = timezone.now() - timedelta(minutes=20)
    opened = resolved - timedelta(hours=2)
    Incident.objects.update(state="resolved", opened_at=opened, resolved_at=resolved)
    found = ask(incident)
    assert found["end"] == pytest.approx(resolved.timestamp() + 600.0, abs=0.001)
    assert not found["live"]


def test_what_happened_is_told(fleet: SmallFleet) -> None:
    incident = open_incident()
    make_run(make_playbook(), incident)
    actions.comment(make_user(Role.OPERATOR), incident, "looking", now=timezone.now())
    gpu = fleet.gpu("oslo-a01-n1")
    XidEvent.objects.create(node=gpu.node, gpu=gpu, ts=timezone.now(), xid=79)
    found = ask(incident)
    lanes = [(lane["key"], lane["kind"]) for lane in found["lanes"]]
    assert lanes == [
        ("rack oslo/A01", "pending"), ("rack oslo/A01", "warning"),
        ("no_new_launches", "restriction"),
    ]  # fmt: skip
    assert found["lanes"][1]["end"] == [None]
    marks = dict(zip(found["marks"]["kind"], found["marks"]["text"], strict=True))
    assert marks.keys() >= {"incident", "playbook", "people", "xid"}
    assert marks["people"].endswith(": looking")


def test_csv_has_the_readings(fleet: SmallFleet) -> None:
    incident = open_incident()
    url = f"/api/v1/incidents/{incident.pk}/figure?format=csv"
    answer = api_client(Role.OPERATOR).get(url)
    assert incident.number in answer["Content-Disposition"]
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert {line["power_w_max"] for line in lines} >= {"400.0"}


def test_a_place_that_is_gone_has_nothing_reported(fleet: SmallFleet) -> None:
    incident = open_incident()
    incident.members.update(scope_name="oslo/gone")
    found = ask(incident)
    assert found["rows"] == []
    assert {each["why"] for each in found["absent"]} == {"not reported"}


def test_an_incident_about_a_job_of_another_project_is_not_there(fleet: SmallFleet) -> None:
    incident = open_incident("job secret", rule="job-slow")
    url = f"/api/v1/incidents/{incident.number}/figure"
    assert api_client(Role.ML_USER).get(url).status_code == 404
    assert api_client(Role.OPERATOR).get(url).status_code == 200


@pytest.mark.parametrize(
    ("params", "field"),
    [({"from": "soon"}, "from"), ({"range": "1y"}, "range"), ({"phase": "train"}, "phase")],
)
def test_bad_input_is_named(fleet: SmallFleet, params: dict[str, str], field: str) -> None:
    assert ask(open_incident(), params, status=400)["error"]["field"] == field


def test_a_number_that_is_none_is_not_there(fleet: SmallFleet) -> None:
    for number in ("INC-0", "abc", "9" * 30):
        url = f"/api/v1/incidents/{number}/figure"
        assert api_client(Role.OPERATOR).get(url).status_code == 404
