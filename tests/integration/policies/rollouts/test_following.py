"""Rollouts in the database: what they start, wait for, judge and take back, and who may what."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.models import AuditEntry
from accounts.roles import Role
from fleet import snapshot
from fleet.models import Gpu, Node
from policies.playbooks import runs as playbook_runs
from policies.playbooks.machine import RunState
from policies.playbooks.models import PlaybookRun
from policies.playbooks.run_context import Conditions
from policies.restrictions.models import Restriction
from policies.rollouts import following
from policies.rollouts.following import ROLLOUTS, NotPossible, Verb
from policies.rollouts.machine import RolloutState
from policies.rollouts.models import RolloutRun
from telemetry import housekeeping
from telemetry.models import ReportedJob
from telemetry.samples import GPU, JOB
from telemetry.versions.models import NodeVersions
from tests.builders.accounts import api_client, make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.policies import make_playbook
from tests.builders.readings import write_samples

pytestmark = pytest.mark.django_db

OLD, NEW = "570.1", "580.2"
_CHANGE = """\
- id: cordon
  restrict: {kind: no_new_launches}
- id: install
  manual: {instruction: "Install it on {name}."}
  undo: {manual: {instruction: "Bring {name} back."}}
"""
_TEXT = """\
name: driver
change: {kind: driver, version: "580.2"}
playbook: change-by-hand
steps: [{share: 0.33, soak: 5m, longest: 20m}, {share: 1.0}]
guards: [{metric: power, matters: 0.02}, {metric: step_time, matters: 0.02}]
block: 60s
by_itself: [promote, roll_back]
"""
START = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def celery_is_out_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)


@pytest.fixture
def fleet() -> SmallFleet:
    made = small_fleet(sites=("oslo",), racks_per_row=3, rows=("A",), gpus_per_node=2)
    snapshot.invalidate()
    make_playbook(_CHANGE, "change-by-hand")
    put_in_force(ROLLOUTS, _TEXT)
    for name in made.nodes:
        report(name, OLD)
    return made


def report(node: str, driver: str) -> None:
    NodeVersions.objects.update_or_create(
        node=Node.objects.get(name=node),
        defaults={"driver": driver, "told_at": START, "changed_at": START},
    )


def begun(**given: Any) -> RolloutRun:
    run = following.start(make_user(Role.OPERATOR), "driver", now=START, **given)
    assert following.follow(run.pk, START)
    run.refresh_from_db()
    return run


def install(fleet: SmallFleet, run: RolloutRun, driver: str = NEW) -> list[str]:
    """Have the nodes of the racks of the rollout report a driver; return those of the first."""
    racks = [path for step in run.racks for path in step]
    for path in racks:
        for node in fleet.nodes_of(path):
            report(node, driver)
    return fleet.nodes_of(racks[0])


def after(run: RolloutRun, minutes: float) -> RolloutRun:
    following.follow(run.pk, START + timedelta(minutes=minutes))
    run.refresh_from_db()
    return run


def test_it_starts_the_playbook_on_the_racks_of_its_first_step(fleet: SmallFleet) -> None:
    run = begun()
    assert run.state == RolloutState.CHANGING
    ((rack,),) = run.racks
    assert len(run.control) == 2
    assert rack not in run.control
    (started,) = PlaybookRun.objects.all()
    assert (started.playbook, started.scope_name) == ("change-by-hand", rack)
    assert started.started_by == "rollout:driver"
    playbook_runs.advance(started.pk, START, Conditions(START))
    assert Restriction.objects.get().scope_name == rack


def test_a_step_is_done_when_agents_report_it_and_not_when_its_playbook_is(
    fleet: SmallFleet,
) -> None:
    run = begun()
    (started,) = PlaybookRun.objects.all()
    playbook_runs.advance(started.pk, START, Conditions(START))
    user = make_user(Role.OPERATOR)
    playbook_runs.confirm(started.pk, "install", user=user, note="done", now=START)
    playbook_runs.advance(started.pk, START, Conditions(START))
    started.refresh_from_db()
    assert started.state == RunState.SUCCEEDED
    assert after(run, 1).state == RolloutState.CHANGING
    report(fleet.nodes_of(run.racks[0][0])[0], NEW)
    assert after(run, 2).state == RolloutState.CHANGING
    install(fleet, run)
    assert after(run, 3).state == RolloutState.SOAKING


def write_jobs(
    fleet: SmallFleet, run: RolloutRun, *, power_after: float, samples_after: float = 1.0
) -> None:
    """Have a job on each rack be read for an hour around the change, at twelve.

    What was changed draws otherwise after it, and takes other batches.
    """
    rng_of = {path: number for number, path in enumerate(fleet.racks)}
    changed = {path for step in run.racks for path in step}
    for path, number in rng_of.items():
        job = ReportedJob.objects.create(name=f"job-{number}")
        times = [START.timestamp() + 20.0 * at for at in range(-120, 120)]
        wobble = [1.0 + 0.002 * ((7 * at + 3 * number) % 11 - 5) / 5 for at in range(240)]
        factor = [
            power_after if at >= START.timestamp() and path in changed else 1.0 for at in times
        ]
        power = [
            (400.0 + 30.0 * number) * one * two for one, two in zip(wobble, factor, strict=True)
        ]
        for gpu in Gpu.objects.filter(node__name__in=fleet.nodes_of(path)):
            write_samples(GPU, gpu.pk, times, power_w=power, util=80.0, temp_c=60.0, job_id=job.pk)
        steps = [2.0 * each for each in wobble]
        rates = [
            512.0 / each * (samples_after if at >= START.timestamp() and path in changed else 1.0)
            for at, each in zip(times, steps, strict=True)
        ]
        write_samples(JOB, job.pk, times, step_time_s=steps, lost_share=0.05, samples_per_s=rates)
    while not housekeeping.roll_up((START + timedelta(hours=2)).timestamp()):
        pass  # its time is up before all is done, on a busy machine


def test_what_draws_more_is_taken_back_by_itself(fleet: SmallFleet) -> None:
    run = begun()
    install(fleet, run)
    write_jobs(fleet, run, power_after=1.05)
    after(run, 0)
    assert run.state == RolloutState.SOAKING
    assert after(run, 18).state == RolloutState.ROLLING_BACK
    power = next(each for each in run.judged["findings"] if each["guard"]["metric"] == "power")
    assert power["state"] == "worse"
    assert 0.04 < power["difference"] < 0.06
    assert run.judged["covered"] == 1.0
    (undoing,) = PlaybookRun.objects.all()
    assert undoing.state == RunState.UNDOING
    assert after(run, 19).state == RolloutState.ROLLING_BACK
    install(fleet, run, OLD)
    assert after(run, 20).state == RolloutState.ROLLED_BACK
    assert run.ended_at is not None
    actions = AuditEntry.objects.filter(action__startswith="rollout.").order_by("id")
    assert [each.action for each in actions][-3:] == [
        "rollout.soaking", "rollout.rolling_back", "rollout.rolled_back",
    ]  # fmt: skip


def test_a_job_that_takes_larger_batches_by_itself_is_no_effect_of_the_change(
    fleet: SmallFleet,
) -> None:
    run = begun()
    install(fleet, run)
    write_jobs(fleet, run, power_after=1.05, samples_after=2.0)
    after(run, 0)
    assert after(run, 18).state == RolloutState.SOAKING
    assert run.judged["other_work"] == {"changed": 1, "control": 0}
    assert {each["state"] for each in run.judged["findings"]} == {"unseen"}
    # It is the only job there: nothing is shown of the change, and it is not let through.
    assert after(run, 21).state == RolloutState.HELD


def test_what_is_harmless_goes_on_to_all_racks_and_is_done(fleet: SmallFleet) -> None:
    run = begun()
    install(fleet, run)
    write_jobs(fleet, run, power_after=1.0)
    after(run, 0)
    assert after(run, 18).state == RolloutState.CHANGING
    assert (run.step, len(run.racks[1]), run.control) == (1, 2, [])
    assert PlaybookRun.objects.count() == 3
    install(fleet, run)
    assert after(run, 19).state == RolloutState.DONE
    assert [each.state for each in run.events.all()] == [
        "pending", "changing", "soaking", "changing", "done",
    ]  # fmt: skip


def test_without_any_evidence_it_is_held_at_last_and_a_person_may_go_on(fleet: SmallFleet) -> None:
    run = begun()
    install(fleet, run)
    after(run, 0)
    assert after(run, 21).state == RolloutState.HELD
    assert "not shown to be harmless" in run.why
    user = make_user(Role.OPERATOR)
    now = START + timedelta(minutes=22)
    moved = following.act(user, run.pk, Verb.PROMOTE, why="looked", now=now)
    assert (moved.state, moved.step, moved.by) == (RolloutState.CHANGING, 1, user.username)


def test_a_playbook_that_is_not_there_holds_it(fleet: SmallFleet) -> None:
    text = _TEXT.replace("change-by-hand", "no-such").replace("name: driver", "name: other")
    put_in_force(ROLLOUTS, text)
    run = following.start(make_user(Role.OPERATOR), "other", now=START)
    following.follow(run.pk, START)
    run.refresh_from_db()
    assert run.state == RolloutState.HELD
    assert "no-such" in run.why
    assert run.racks == []
    make_playbook(_CHANGE, "no-such")
    user = make_user(Role.OPERATOR)
    resumed = following.act(user, run.pk, Verb.RESUME, why="it is there now", now=START)
    assert (resumed.state, len(resumed.racks)) == (RolloutState.CHANGING, 1)


def test_one_name_is_under_way_once(fleet: SmallFleet) -> None:
    begun()
    with pytest.raises(NotPossible, match="under way already"):
        following.start(make_user(Role.OPERATOR), "driver", now=START)


def test_a_draft_is_not_started(fleet: SmallFleet) -> None:
    with pytest.raises(NotPossible, match="no version of other"):
        following.start(make_user(Role.OPERATOR), "other", now=START)


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_one_makes_a_move(fleet: SmallFleet) -> None:
    run = following.start(make_user(Role.OPERATOR), "driver", now=START)
    made: list[bool] = []

    def work() -> None:
        made.append(following.follow(run.pk, START))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert PlaybookRun.objects.count() == 1
    assert True in made


# --- Through the API -----------------------------------------------------------------------------


def test_the_api_shows_arms_evidence_drift_and_what_comes_next(fleet: SmallFleet) -> None:
    run = begun()
    node = fleet.nodes_of(run.racks[0][0])[0]
    found = api_client(Role.VIEWER).get("/api/v1/rollouts/driver").json()
    assert found["run"]["state"] == "changing"
    assert {"rack": run.racks[0][0], "node": node, "wanted": NEW, "found": OLD} in found["drift"]
    assert found["may"] == ["hold", "roll_back"]
    assert found["next"].startswith("step 1 soaks once all its racks report")
    assert set(found["control"]) == set(run.control)
    (listed,) = api_client(Role.VIEWER).get("/api/v1/rollouts").json()
    assert (listed["name"], listed["version"]) == ("driver", 1)
    assert api_client(Role.VIEWER).get("/api/v1/rollouts/none").status_code == 404


def act(role: Role, verb: str) -> Any:
    client = api_client(role)
    return client.post(
        f"/api/v1/rollouts/driver/{verb}", {"why": "said"}, content_type="application/json"
    )


def test_to_stop_takes_less_than_to_go_on(fleet: SmallFleet) -> None:
    begun()
    assert act(Role.VIEWER, "hold").status_code == 403
    assert act(Role.RESPONDER, "hold").json()["run"]["state"] == "held"
    assert act(Role.RESPONDER, "resume").status_code == 403
    assert act(Role.RESPONDER, "promote").status_code == 403
    assert act(Role.OPERATOR, "promote").json()["error"]["code"] == "wrong_state"
    assert act(Role.OPERATOR, "resume").json()["run"]["state"] == "changing"
    assert act(Role.RESPONDER, "roll-back").json()["run"]["state"] == "rolling_back"
    assert act(Role.RESPONDER, "roll-back").status_code == 409


def test_it_is_started_through_the_api_once(fleet: SmallFleet) -> None:
    assert act(Role.VIEWER, "start").status_code == 403
    assert act(Role.RESPONDER, "start").status_code == 201
    assert act(Role.RESPONDER, "start").status_code == 409
