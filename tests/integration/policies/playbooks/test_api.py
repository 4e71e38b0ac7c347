"""``/api/v1/playbooks`` and ``/api/v1/playbook-runs``."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.playbooks import builtin
from policies.playbooks.models import Directive, PlaybookRun, PlaybookVersion, StepRun
from policies.restrictions.models import Restriction
from tests.builders.accounts import api_client
from tests.integration.policies.playbooks.conftest import HEAD, Readings, Stage, make_playbook

STEPS = """\
    - {id: stop, restrict: {kind: no_new_launches}}
    - {id: ask, approve: {question: Cap, roles: [operator]}, timeout: 10m}
    - {id: look, manual: {instruction: Look}, timeout: 10m}
"""
TEXT = HEAD.format(name="on-stage") + "steps:\n  - {id: a, checkpoint: {}}\n"
ON_RACK = {"kind": "rack", "name": "oslo/A01"}


def draft(client: Client, text: str) -> Any:
    return client.post("/api/v1/playbooks", text, content_type="application/yaml")


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(f"/api/v1/{path}", body or {}, content_type="application/json")


def started(client: Client) -> dict[str, Any]:
    answer = post(client, "playbook-runs", {"playbook": "on-stage", "scope": ON_RACK})
    assert answer.status_code == 201, answer.json()
    found: dict[str, Any] = answer.json()
    return found


def advance(run_id: int) -> None:
    run = PlaybookRun.objects.get(pk=run_id)
    Stage(run, run.started_at).play()


# --- Versions -------------------------------------------------------------------------------------


def test_a_draft_is_reviewed_by_somebody_else() -> None:
    author, reviewer = api_client(Role.OPERATOR), api_client(Role.OPERATOR)
    answer = draft(author, TEXT)
    assert answer.status_code == 201
    assert (answer.json()["number"], answer.json()["state"]) == (1, "draft")
    promote, active = "playbooks/on-stage/versions/1/promote", {"to": "active"}
    refused = post(author, promote, active)
    assert refused.status_code == 409
    assert "somebody else has to let it count" in refused.json()["error"]["message"]
    assert post(reviewer, promote, active).json()["state"] == "active"
    assert post(reviewer, promote, active).status_code == 409
    second = draft(author, TEXT.replace("Heat", "Power"))
    assert second.json()["number"] == 2
    assert post(reviewer, "playbooks/on-stage/versions/2/promote", active).status_code == 200
    listed = reviewer.get("/api/v1/playbooks/on-stage/versions").json()
    assert [(row["number"], row["state"]) for row in listed] == [(2, "active"), (1, "retired")]
    assert [row["number"] for row in reviewer.get("/api/v1/playbooks").json()["results"]] == [2]
    entries = AuditEntry.objects.filter(action__startswith="playbook").order_by("id")
    assert list(entries.values_list("action", flat=True)) == [
        "playbook.draft", "playbook.active",
        "playbook.draft", "playbook.retire", "playbook.active",
    ]  # fmt: skip
    retired = post(reviewer, "playbooks/on-stage/versions/2/retire", {"why": "no use"})
    assert retired.json()["state"] == "retired"


def test_bad_yaml_is_told_with_line_and_column() -> None:
    answer = draft(api_client(Role.OPERATOR), TEXT.replace("checkpoint", "chekpoint"))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == ("invalid_document", "steps[0].chekpoint")
    assert (error["line"], error["column"]) == (8, 13)
    assert error["message"].startswith("Object contains unknown field")
    assert "checkpoint" in error["hint"]


def test_text_that_is_none_is_refused() -> None:
    operator = api_client(Role.OPERATOR)
    assert draft(operator, "").status_code == 400
    answer = operator.post("/api/v1/playbooks", b"\xff\xfe\x00", content_type="application/yaml")
    assert answer.status_code == 400


def test_responders_write_no_playbooks_and_viewers_run_none() -> None:
    make_playbook(STEPS)
    assert draft(api_client(Role.RESPONDER), TEXT).status_code == 403
    viewer = api_client(Role.VIEWER)
    run = {"playbook": "on-stage", "scope": ON_RACK}
    assert post(viewer, "playbook-runs", run).status_code == 403
    assert viewer.get("/api/v1/playbooks").status_code == 200


def test_what_a_version_says_never_changes(db: None) -> None:
    from django.db import DatabaseError, transaction

    version = make_playbook(STEPS)
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        PlaybookVersion.objects.filter(pk=version.pk).update(text=TEXT)


def test_the_built_in_ones_come_once_and_leave_peoples_alone() -> None:
    assert len(builtin.load()) == 9
    assert builtin.load() == []
    operator, other = api_client(Role.OPERATOR), api_client(Role.OPERATOR)
    text = builtin.texts()["power-cap"].replace("0.88", "0.8")
    number = draft(operator, text).json()["number"]
    post(other, f"playbooks/power-cap/versions/{number}/promote", {"to": "active"})
    post(operator, "playbooks/lemon-gpu/versions/1/retire", {"why": "no use"})
    PlaybookVersion.objects.filter(name="feed-loss").delete()
    assert builtin.load() == ["feed-loss"]
    active = PlaybookVersion.objects.active().values_list("name", "number")
    assert ("power-cap", 2) in active
    assert "lemon-gpu" not in dict(active)


# --- Dry run --------------------------------------------------------------------------------------


def test_a_dry_run_says_all_and_writes_nothing(readings: Readings) -> None:
    make_playbook(
        """\
        - id: cap
          restrict: {kind: power_cap_w, value: 0.5 * power_budget_w / gpus, until: cool}
        - id: which
          branch:
            when: power_use > 0.9
            then: [{id: move, migrate: {to: local-only}, on_timeout: undo}]
            else: [{id: tell, notify: {subject: "{name} draws {power_drawn_w}"}}]
        - {id: ask, approve: {question: Go on, roles: [operator]}}
        - {id: low, restrict: {kind: power_cap_w, value: 10}}
        - {id: cool, wait_until: {condition: thermal_margin_c > 12.0, for: 5m}}
        """
    )
    readings.values["power_use"] = 0.5
    api_client(Role.OPERATOR)
    responder = api_client(Role.RESPONDER)
    entries = AuditEntry.objects.count()
    answer = post(responder, "playbooks/on-stage/dry-run", {"scope": ON_RACK})
    assert answer.status_code == 200, answer.json()
    cap, which, move, tell, ask, low, cool = answer.json()["steps"]
    assert cap["numbers"] == {"value": 750, "gpus": 8, "load_w": 9000, "saves_w": 3000}
    assert cap["does"] == (
        "power_cap_w at 750 W on rack oslo/A01, which has 8 GPUs and draws 9 kW; takes at most"
        " 3 kW off; until step cool is over"
    )
    assert cap["undo"] == "the restriction is released"
    assert (which["holds"], move["is_on_the_way"], tell["is_on_the_way"]) == (False, False, True)
    assert move["undo"].startswith("has jobs of rack oslo/A01 go on as primary-site")
    assert tell["does"] == "tells all who hear of the incident: oslo/A01 draws 9 kW"
    assert ask["does"] == "asks operator (1 people) within 30m: Go on"
    assert ask["otherwise"] == "no answer: abort; a no: abort"
    assert "below what a H100 can be brought to" in low["problem"]
    assert cool["does"].endswith("has held for 5m, for 1h at most")
    for model in (PlaybookRun, StepRun, Restriction, Directive):
        assert not model.objects.exists()
    assert AuditEntry.objects.count() == entries


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "scope"),
        ({"scope": {"kind": "rack", "name": "oslo/Z9"}}, "scope_name"),
        ({"scope": {"kind": "site", "name": "oslo"}}, "scope_kind"),
        ({"scope": ON_RACK, "inputs": {"watts": 1}}, "inputs.watts"),
    ],
)
def test_a_bad_dry_run_names_the_field(body: Any, field: str) -> None:
    make_playbook(STEPS)
    answer = post(api_client(Role.RESPONDER), "playbooks/on-stage/dry-run", body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


@pytest.mark.parametrize("name", ["power-cap", "stale-telemetry", "thermal-throttle"])
def test_built_in_ones_can_be_planned(name: str, readings: Readings) -> None:
    builtin.load()
    readings.values |= {"power_drawn_use": 1.1, "thermal_margin_c": 1.0, "throttling": 2.0}
    answer = post(api_client(Role.RESPONDER), f"playbooks/{name}/dry-run", {"scope": ON_RACK})
    assert [step["problem"] for step in answer.json()["steps"]] == [""] * len(
        answer.json()["steps"]
    )


# --- Runs -----------------------------------------------------------------------------------------


def test_a_run_is_started_answered_confirmed_and_shown() -> None:
    make_playbook(STEPS)
    operator, responder = api_client(Role.OPERATOR), api_client(Role.RESPONDER)
    run = started(responder)
    assert (run["state"], run["step"], run["steps"]) == ("running", "stop", [])
    advance(run["id"])
    path = f"playbook-runs/{run['id']}"
    assert post(responder, f"{path}/approve", {"step": "ask"}).status_code == 403
    assert post(operator, f"{path}/approve", {"step": "look"}).status_code == 409
    assert post(operator, f"{path}/approve", {"step": "ask", "note": "go"}).status_code == 200
    again = post(operator, f"{path}/refuse", {"step": "ask"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "wrong_state")
    advance(run["id"])
    assert post(responder, f"{path}/confirm", {"step": "look"}).status_code == 200
    advance(run["id"])
    shown = responder.get(f"/api/v1/{path}").json()
    assert shown["state"] == "succeeded"
    assert [(s["step"], s["state"]) for s in shown["steps"]] == [
        ("stop", "done"), ("ask", "done"), ("look", "done"),
    ]  # fmt: skip
    assert shown["steps"][1]["note"] == "go"
    listed = responder.get("/api/v1/playbook-runs?live=0").json()["results"]
    assert [row["id"] for row in listed] == [run["id"]]
    assert responder.get("/api/v1/playbook-runs?live=1").json()["results"] == []


def test_a_run_is_paused_aborted_and_taken_back() -> None:
    make_playbook(STEPS)
    responder = api_client(Role.RESPONDER)
    path = f"playbook-runs/{started(responder)['id']}"
    assert post(responder, f"{path}/pause").json()["state"] == "paused"
    assert post(responder, f"{path}/pause").status_code == 409
    assert post(responder, f"{path}/resume").json()["state"] == "running"
    assert post(responder, f"{path}/abort").status_code == 400
    assert post(responder, f"{path}/abort", {"why": "enough"}).json()["state"] == "aborted"
    assert post(responder, f"{path}/undo", {"why": "all"}).json()["state"] == "undoing"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"incident_id": 7}, "incident_id"),
        ({"inputs": {"cap_w": "nan"}}, "inputs.cap_w"),
        ({"inputs": {"cap_w": 5}}, "inputs.cap_w"),
        ({"scope": {"kind": "rock", "name": "x"}}, "scope.kind"),
    ],
)
def test_a_bad_start_names_the_field(more: dict[str, Any], field: str) -> None:
    inputs = "inputs:\n  cap_w: {default: 500, min: 200, help: Cap}\n"
    make_playbook("- {id: a, checkpoint: {}}", head=HEAD + inputs)
    body = {"playbook": "on-stage", "scope": ON_RACK, **more}
    answer = post(api_client(Role.RESPONDER), "playbook-runs", body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)
    assert not PlaybookRun.objects.exists()


def test_what_is_not_there_is_404() -> None:
    responder = api_client(Role.RESPONDER)
    assert post(responder, "playbook-runs/7/pause").status_code == 404
    assert responder.get("/api/v1/playbooks/none/versions").status_code == 404
    assert post(responder, "playbooks/none/dry-run", {"scope": ON_RACK}).status_code == 404
