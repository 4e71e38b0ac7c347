"""Runs in the database: what they do there, and what people do to them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_init

from accounts.models import AuditEntry, User
from fleet import snapshot
from fleet.models import HardwareModel
from policies.incidents.models import (
    Delivery,
    Incident,
    IncidentMember,
    NotificationChannel,
    TimelineEntry,
)
from policies.playbooks import directives, runs
from policies.playbooks.models import Directive, PlaybookRun
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.scopes import Scope, ScopeKind
from tests.builders.fleet import SmallFleet
from tests.integration.policies.playbooks.conftest import (
    RACK,
    Readings,
    make_playbook,
    start,
)

CAP = """\
    - id: stop
      restrict: {kind: no_new_launches, until: cool, reason: "hot, with {power_drawn_w}"}
    - id: cap
      restrict: {kind: power_cap_w, value: 0.5 * power_budget_w / gpus}
    - id: cool
      wait_until: {condition: thermal_margin_c > 12.0, for: 10s}
      timeout: 1h
"""


def make_incident() -> Incident:
    return Incident.objects.create(
        title="Hot", group_key="hot", rule="hot", severity="critical",
        scope_kind="rack", scope_name="oslo/A01", opened_at=datetime.now(UTC),
    )  # fmt: skip


def test_it_restricts_waits_and_gives_back(readings: Readings) -> None:
    stage = start(CAP)
    assert stage.play().state == "waiting"
    assert stage.in_force() == {("no_new_launches", None), ("power_cap_w", 750.0)}
    stop = Restriction.objects.get(kind="no_new_launches")
    assert stop.owner == f"playbook:{stage.run.pk}/0"
    assert stop.reason.startswith("hot, with 9 kW")
    readings.values["thermal_margin_c"] = 20.0
    stage.play(2)
    stage.play(10)
    assert stage.run.state == "succeeded"
    assert stage.in_force() == set()
    assert stage.run.due_at is None


def test_leases_are_renewed_and_end_with_a_server_that_is_dead(readings: Readings) -> None:
    stage = start(CAP)
    stage.play()
    stage.play(300)
    assert Restriction.objects.get(kind="power_cap_w").expires_at == stage.now + timedelta(
        seconds=600
    )
    stage.now += timedelta(seconds=600)
    assert stage.in_force() == set()


def test_a_restriction_that_cannot_be_is_the_error_of_its_step(readings: Readings) -> None:
    stage = start("- {id: cap, restrict: {kind: power_cap_w, value: 20}}")
    assert stage.play().state == "failed"
    assert "below what a H100 can be brought to" in stage.run.why
    assert not Restriction.objects.exists()


def test_one_that_waits_for_a_person_says_so(readings: Readings) -> None:
    stage = start(
        "- {id: all, restrict: {kind: drain, scope: site}}\n- {id: wait, wait_until: {for: 1m}}"
    )
    stage.play()
    step = stage.run.steps.get(step="all")
    assert "waits for a person: policies would take 100 %" in step.note
    assert (step.state, step.restriction) == ("held", Restriction.objects.get().pk)


HELD = """\
    - {id: all, restrict: {kind: drain, scope: site, until: run}}
    - {id: wait, manual: {instruction: Look}, timeout: 1h}
"""


def test_a_step_that_is_held_back_is_approved_on_the_spot(operator: User) -> None:
    NotificationChannel.objects.create(name="all", kind="email", target="a@b.c")
    stage = start(HELD)
    stage.play()
    asked = Delivery.objects.get(key=stage.run.key("0"))
    assert asked.subject == "Approval wanted: drain on rack oslo/A01 is held back"
    seen = Restriction.objects.get().version
    with pytest.raises(runs.NotPossible, match="it has changed since you looked"):
        runs.answer(stage.run.pk, "all", yes=True, user=operator, note="", now=stage.now,
                    version=seen + 1)  # fmt: skip
    runs.answer(stage.run.pk, "all", yes=True, user=operator, note="", now=stage.now, version=seen)
    stage.play(2)
    assert stage.states() == {"all": "done", "wait": "waiting"}
    assert ("drain", None) in stage.in_force()


def test_a_step_whose_restriction_is_refused_or_lifted_is_not_done(operator: User) -> None:
    stage = start(HELD)
    stage.play()
    runs.answer(stage.run.pk, "all", yes=False, user=operator, note="too much", now=stage.now)
    stage.play(2)
    step = stage.run.steps.get(step="all")
    assert (step.state, step.by) == ("refused", operator.username)
    assert step.note == f"refused by {operator.username}: too much"
    with pytest.raises(runs.NotPossible):
        runs.answer(stage.run.pk, "all", yes=True, user=operator, note="", now=stage.now)


def test_what_was_held_back_to_the_end_is_not_done(operator: User) -> None:
    stage = start(HELD)
    stage.play()
    runs.confirm(stage.run.pk, "wait", user=operator, note="", now=stage.now)
    stage.play(2)
    assert stage.states() == {"all": "withdrawn", "wait": "done"}


@pytest.mark.parametrize(
    ("kind", "data", "note"),
    [
        ("applied", {"applied": 0, "expected": 8, "error": "busy"},
         "without effect: no GPU has set it: busy"),
        ("verdict", {"outcome": "exceeded", "effect": {"over": 6, "measured": 8}},
         "without effect: 6 of 8 GPUs are over it"),
    ],
)  # fmt: skip
def test_a_cap_without_effect_is_not_done(kind: str, data: dict[str, Any], note: str) -> None:
    stage = start(
        "- {id: cap, restrict: {kind: power_cap_w, value: 500}}\n"
        "- {id: wait, wait_until: {for: 1h}}"
    )
    stage.play()
    assert stage.states()["cap"] == "done"
    row = Restriction.objects.get()
    RestrictionEvent.objects.create(
        restriction=row, at=stage.now, kind=kind, by="system", data=data, cycle=row.cycle
    )
    stage.play(10)
    step = stage.run.steps.get(step="cap")
    assert (step.state, step.note) == ("ineffective", note)


def test_the_incident_tells_its_story(readings: Readings) -> None:
    incident = make_incident()
    stage = start(CAP, incident_id=incident.pk)
    stage.play()
    readings.values["thermal_margin_c"] = 20.0
    stage.play(2)
    stage.play(10)
    incident.state, incident.resolved_at = "resolved", stage.now
    incident.save()
    stage.play(2)
    told = list(TimelineEntry.objects.filter(incident=incident).values_list("kind", flat=True))
    assert told == [
        "playbook_started", "playbook_step_done", "playbook_step_done", "playbook_step_waiting",
        "playbook_step_done", "playbook_verifying", "playbook_succeeded",
    ]  # fmt: skip


def test_once_its_incident_is_over_it_restricts_nothing_more(readings: Readings) -> None:
    incident = make_incident()
    stage = start("    - {id: wait, wait_until: {for: 1m}}\n" + CAP, incident_id=incident.pk)
    stage.play()
    incident.state, incident.resolved_at = "resolved", datetime.now(UTC)
    incident.save()
    stage.play(60)
    assert stage.states()["cap"] == stage.states()["stop"] == "skipped"
    assert not Restriction.objects.exists()


def test_of_an_incident_of_many_places_a_run_looks_at_its_own(readings: Readings) -> None:
    incident = make_incident()
    for place in range(30):
        IncidentMember.objects.create(
            incident=incident, key=f"hot-{place}", rule="hot", version=1, severity="critical",
            scope_kind="rack", scope_name=f"oslo/A{place:02}", since=datetime.now(UTC),
            fired_at=datetime.now(UTC),
        )  # fmt: skip
    stage = start(CAP, incident_id=incident.pk)
    made: list[str] = []

    def note(instance: IncidentMember, **_details: Any) -> None:
        made.append(instance.scope_name)

    post_init.connect(note, sender=IncidentMember)
    try:
        assert stage.play().state == "waiting"
    finally:
        post_init.disconnect(note, sender=IncidentMember)
    assert set(made) == {RACK.name}


def test_an_incident_has_one_run_of_a_playbook_at_a_time(readings: Readings) -> None:
    version = make_playbook(CAP)
    now = datetime.now(UTC)
    first, second = (
        runs.start(version.name, scope=RACK, values={}, incident_id=7, by="loop", now=now)
        for _ in range(2)
    )
    assert first.pk == second.pk
    assert AuditEntry.objects.filter(action="playbook.start").count() == 1


@pytest.mark.parametrize(
    ("name", "scope", "inputs", "field"),
    [
        ("nobody", RACK, {}, "playbook"),
        ("on-stage", Scope(ScopeKind.SITE, "oslo"), {}, "scope_kind"),
        ("on-stage", Scope(ScopeKind.RACK, "oslo/Z99"), {}, "scope_name"),
        ("on-stage", RACK, {"watts": 3.0}, "inputs.watts"),
    ],
)
def test_a_bad_start_names_the_field(
    name: str, scope: Scope, inputs: dict[str, float], field: str
) -> None:
    make_playbook(CAP)
    with pytest.raises(runs.BadStart) as caught:
        runs.start(
            name, scope=scope, values={}, incident_id=None, by="ada", now=datetime.now(UTC),
            inputs=inputs,
        )  # fmt: skip
    assert caught.value.field == field
    assert not PlaybookRun.objects.exists()


# --- Others ---------------------------------------------------------------------------------------


def test_a_directive_waits_for_an_executor_and_ends_with_its_time() -> None:
    stage = start(
        "- {id: save, checkpoint: {}, timeout: 5m, on_timeout: continue}\n"
        "- {id: move, migrate: {to: local-only}, timeout: 5m}"
    )
    stage.play()
    key = stage.run.key("0")
    stage.play(300)
    saved = Directive.objects.get(key=key)
    assert (saved.state, saved.note) == ("withdrawn", "step save was not done in time")
    with pytest.raises(directives.NoSuchChange):
        directives.report(key, "acknowledged", now=stage.now)
    move = stage.run.key("1")
    for state in ("acknowledged", "applied"):
        directives.report(move, state, note="2 jobs", now=stage.now)
    assert stage.play(2).state == "succeeded"
    assert [line["state"] for line in Directive.objects.get(key=move).ledger] == [
        "issued", "acknowledged", "applied",
    ]  # fmt: skip


def test_no_executor_takes_up_what_is_too_old() -> None:
    stage = start("- {id: save, checkpoint: {}, timeout: 5m}")
    stage.play()
    with pytest.raises(directives.NoSuchChange, match="do not do it any more"):
        directives.report(stage.run.key("0"), "acknowledged", now=stage.now + timedelta(minutes=5))


def test_a_webhook_is_a_message_whose_delivery_the_step_waits_for() -> None:
    NotificationChannel.objects.create(name="dcim", kind="webhook", target="https://dcim.example")
    stage = start("- {id: call, webhook: {channel: dcim, subject: 'Hi {scope}'}, timeout: 5m}")
    stage.play()
    delivery = Delivery.objects.get()
    assert (delivery.key, delivery.subject) == (stage.run.key("0"), "Hi rack oslo/A01")
    Delivery.objects.update(state="sent", attempts=2)
    assert stage.play(2).state == "succeeded"


def test_a_message_that_was_not_sent_in_time_is_not_sent_any_more() -> None:
    NotificationChannel.objects.create(name="dcim", kind="webhook", target="https://dcim.example")
    stage = start("- {id: call, webhook: {channel: dcim, subject: Hi}, timeout: 5m}")
    stage.play()
    assert stage.play(300).state == "failed"
    assert Delivery.objects.get().state == "failed"


def test_a_channel_that_is_not_there_is_the_error_of_its_step() -> None:
    stage = start("- {id: tell, notify: {subject: Hi, channels: [nowhere]}}")
    assert stage.play().state == "failed"
    assert "no notification channel 'nowhere'" in stage.run.why


def test_a_question_goes_to_whoever_hears_of_incidents() -> None:
    for name, least in (("all", "info"), ("worst", "critical")):
        NotificationChannel.objects.create(name=name, kind="email", target="a@b.c",
                                           min_severity=least)  # fmt: skip
    stage = start("- {id: ask, approve: {question: Cap it}}")
    stage.play()
    assert [each.channel.name for each in Delivery.objects.all()] == ["all"]


# --- People ---------------------------------------------------------------------------------------

ASK = """\
    - {id: stop, restrict: {kind: no_new_launches}}
    - {id: ask, approve: {question: Cap, roles: [operator]}, timeout: 10m}
    - {id: look, manual: {instruction: Look}, timeout: 10m}
"""


def test_only_who_may_answers(operator: User, responder: User) -> None:
    stage = start(ASK)
    stage.play()
    with pytest.raises(runs.NotAllowed, match="operator"):
        runs.answer(stage.run.pk, "ask", yes=True, user=responder, note="", now=stage.now)
    runs.answer(stage.run.pk, "ask", yes=True, user=operator, note="go", now=stage.now)
    stage.play()
    step = stage.run.steps.get(step="ask")
    assert (step.state, step.by, step.note) == ("done", operator.username, "go")
    entry = AuditEntry.objects.get(action="playbook.approve")
    assert (entry.actor, entry.detail["step"]) == (operator.username, "ask")
    runs.confirm(stage.run.pk, "look", user=responder, note="", now=stage.now)
    assert stage.play().state == "succeeded"


def test_pause_resume_abort_and_undo(operator: User) -> None:
    stage = start(ASK)
    stage.play()
    runs.pause(stage.run.pk, user=operator, now=stage.now)
    assert stage.play(60).state == "paused"
    runs.resume(stage.run.pk, user=operator, now=stage.now)
    assert stage.play().state == "waiting"
    runs.abort(stage.run.pk, user=operator, why="enough", now=stage.now)
    assert stage.play().why == f"aborted by {operator.username}: enough"
    assert stage.in_force() == set()
    runs.undo(stage.run.pk, user=operator, why="all of it", now=stage.now)
    assert stage.play().state == "undone"
    with pytest.raises(runs.NotPossible):
        runs.undo(stage.run.pk, user=operator, why="again", now=stage.now)


@pytest.mark.django_db(transaction=True)
def test_two_approvals_at_once_count_once(operator: User) -> None:
    stage = start(ASK)
    stage.play()
    gate = threading.Barrier(4)

    def approve(yes: bool) -> bool:
        try:
            gate.wait()
            runs.answer(stage.run.pk, "ask", yes=yes, user=operator, note="", now=stage.now)
        except runs.NotPossible:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(approve, [True, True, False, False]))
    assert answers.count(True) == 1
    entries = AuditEntry.objects.filter(action__in=["playbook.approve", "playbook.refuse"])
    assert entries.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_workers_do_not_move_one_run(readings: Readings) -> None:
    stage = start(CAP)

    def advance() -> int:
        try:
            return runs.advance(stage.run.pk, stage.now)
        finally:
            connection.close()

    with transaction.atomic():
        PlaybookRun.objects.select_for_update().get(pk=stage.run.pk)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(advance).result() == 0
    # Three steps, and of two of them the numbers of their restrictions.
    assert runs.advance(stage.run.pk, stage.now) == 5


def test_due_runs_are_those_whose_time_has_come(readings: Readings) -> None:
    stage = start("- {id: wait, wait_until: {for: 1h}}")
    assert runs.due_runs(stage.now) == [stage.run.pk]
    stage.play()
    assert runs.due_runs(stage.now + timedelta(minutes=59)) == []
    assert runs.due_runs(stage.now + timedelta(hours=1)) == [stage.run.pk]


def test_a_restriction_that_cannot_be_renewed_is_let_go_and_the_run_goes_on(
    fleet: SmallFleet, readings: Readings
) -> None:
    stage = start(
        "- {id: cap, restrict: {kind: power_cap_w, value: 300}}\n"
        "- {id: wait, wait_until: {for: 2h}}"
    )
    stage.play()
    HardwareModel.objects.filter(name="H100").update(rated_w=2000.0)
    snapshot.invalidate()
    stage.play(300)
    assert stage.run.state == "waiting"
    assert stage.in_force() == set()
    assert "below what a H100 can be brought to" in stage.run.steps.get(step="cap").note
