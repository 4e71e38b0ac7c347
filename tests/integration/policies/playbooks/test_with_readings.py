"""Playbooks over headroom as it really is: telemetry in, restrictions out."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.roles import Role
from fleet.models import PowerDomain, Rack
from policies.headroom import live
from policies.playbooks import builtin, runs, tasks
from policies.playbooks.models import PlaybookRun
from policies.playbooks.run_context import Conditions
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.integration.policies.playbooks.conftest import RACK, make_playbook, start

FEED = Scope(ScopeKind.POWER_DOMAIN, "oslo/feed-a1")


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    live.invalidate()


def run_of(name: str, scope: Scope) -> PlaybookRun:
    builtin.load()
    now = datetime.now(UTC)
    run = runs.start(name, scope=scope, values={}, incident_id=None, by="ada", now=now)
    runs.advance(run.pk, now, Conditions(now))
    run.refresh_from_db()
    return run


@pytest.mark.parametrize("scope", [RACK, FEED])
def test_the_power_cap_fits_into_the_budget(fleet: SmallFleet, scope: Scope) -> None:
    """All GPUs at the cap, and hosts as they were, draw what the playbook aims at."""
    Rack.objects.update(budget_w=8_000.0)
    PowerDomain.objects.filter(kind="feed").update(capacity_w=28_000.0)
    fleet.report(power_w=650.0)
    before = live.current(time.time()).table(scope.kind).row(scope.name)
    assert before["power_use"] > 1.0
    run = run_of("power-cap", scope)
    cap = Restriction.objects.get(kind="power_cap_w")
    assert cap.value is not None
    assert 200.0 < cap.value < 650.0
    gpus, share = (8, 1.0) if scope is RACK else (48, 0.5)
    saved_w = share * gpus * (650.0 - cap.value)
    assert before["power_load_w"] - saved_w == pytest.approx(0.88 * before["power_budget_w"])
    assert (cap.scope_kind, cap.state) == (scope.kind.value, "in_force")
    assert cap.reason.startswith(f"{scope.name} draws ")
    assert run.steps.get(step="cap").value == cap.value


def test_a_stale_rack_is_not_taken_for_a_cool_one(fleet: SmallFleet) -> None:
    stage = start("- {id: cool, wait_until: {condition: thermal_margin_c > 12.0}, timeout: 1h}")
    stage.play()
    assert stage.run.state == "waiting"
    fleet.report(temp_c=50.0)
    live.invalidate()
    stage.play(2)
    assert stage.run.state == "succeeded"


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("thermal-throttle", Scope(ScopeKind.ZONE, "oslo/hall-1")),
        ("feed-loss", FEED),
        ("network-partition", Scope(ScopeKind.SITE, "oslo")),
        ("wan-degradation", Scope(ScopeKind.LINK, "oslo/A01/uplink")),
        ("lemon-gpu", Scope(ScopeKind.NODE, "oslo-a01-n1")),
        ("stale-telemetry", RACK),
    ],
)
def test_every_built_in_one_runs_and_is_let_go(fleet: SmallFleet, name: str, scope: Scope) -> None:
    fleet.report()
    plan: Any = api_client(Role.RESPONDER).post
    builtin.load()
    answer = plan(
        f"/api/v1/playbooks/{name}/dry-run",
        {"scope": {"kind": scope.kind.value, "name": scope.name}},
        content_type="application/json",
    )
    assert {step["problem"] for step in answer.json()["steps"]} == {""}
    run = run_of(name, scope)
    assert run.state == "waiting"
    assert Restriction.objects.in_force(run.started_at + timedelta(seconds=1)).exists() or (
        Restriction.objects.filter(state="pending_approval").exists()
    )
    later = run.started_at
    for _ in range(10):
        later += timedelta(days=1)
        runs.advance(run.pk, later, Conditions(later))
    run.refresh_from_db()
    assert run.ended_at is not None
    assert not Restriction.objects.live().exists()


def test_one_run_that_cannot_be_moved_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = start("- {id: a, wait_until: {for: 1m}}").run
    good = runs.start(
        make_playbook("- {id: a, wait_until: {for: 1m}}", name="other").name,
        scope=RACK, values={}, incident_id=None, by="ada", now=datetime.now(UTC),
    )  # fmt: skip
    moved = runs.advance

    def advance(run_id: int, *given: Any) -> int:
        if run_id == bad.pk:
            raise RuntimeError("a fault")
        return moved(run_id, *given)

    monkeypatch.setattr(runs, "advance", advance)
    tasks.advance_due()
    good.refresh_from_db()
    bad.refresh_from_db()
    assert good.state == "waiting"
    assert bad.due_at is not None
    assert bad.due_at > datetime.now(UTC) + timedelta(seconds=20)
