"""Why jobs are told something: overloads, restrictions, caps, playbooks, lost sites."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from admission.core.directives.restricting import CAP_OWNER
from admission.directives import actions
from admission.directives.models import Directive, JobFallback, Overload
from admission.executors.models import Gang
from admission.jobs.models import Attempt, Job, JobEvent
from fleet import snapshot
from fleet.models import Rack, Site
from policies.playbooks import directives as playbooks
from policies.playbooks.models import Directive as Asked
from policies.playbooks.models import PlaybookRun
from policies.restrictions import store as restrictions
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from telemetry.models import CheckpointFact
from tests.builders.checkpoints import make_fact
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.policies import make_playbook, make_run
from tests.integration.admission.directives.scenes import (
    OTHER_RACK,
    RACK,
    WORK_W,
    Clock,
    end,
    obey,
    only,
    running,
    signals,
)

pytestmark = pytest.mark.django_db
INFERENCE = "latency-sensitive-inference-build"


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    return Clock(fleet)


def restrict(clock: Clock, kind: RestrictionKind, scope: Scope, value: float | None = None) -> None:
    wanted = Wanted(
        kind=kind, scope=scope, value=value, reason="too hot", owner="rule:test", cause="test",
        expires_at=clock.at + timedelta(hours=1), most_of_site=1.0,
    )  # fmt: skip
    restrictions.apply([wanted], now=clock.at)


def lift(clock: Clock) -> None:
    restrictions.release("rule:test", now=clock.at, by="rule:test", why="it is cooler")


# --- Overload -------------------------------------------------------------------------------------


def test_what_stays_over_its_budget_is_relieved_with_the_least_work_lost(
    fleet: SmallFleet, clock: Clock
) -> None:
    nodes = fleet.nodes_of(RACK)
    clock.power_w |= dict.fromkeys(nodes, WORK_W)
    old = clock.at - timedelta(minutes=9)
    fresh = running(
        fleet, "fresh", nodes[:1], now=clock.now, job_class=INFERENCE,
        attempt={"checkpoint_at": clock.at},
    )  # fmt: skip
    running(
        fleet, "stale", nodes[1:], now=clock.now, job_class=INFERENCE,
        attempt={"checkpoint_at": old},
    )  # fmt: skip
    Rack.objects.update(budget_w=8_000.0)
    snapshot.invalidate()
    clock.run(20)
    assert Overload.objects.get().scope == Scope(ScopeKind.RACK, RACK)
    assert not Directive.objects.exists(), "others have a while to bring it down"
    clock.rest(45)
    row = only()
    assert (row.kind, row.owner, row.attempt) == ("stop", "shedding", fresh)
    assert "rack oslo/A01 by 1.0 kW over budget: frees 3." in row.reason
    fresh.refresh_from_db()
    assert (fresh.outcome, fresh.phase.state) == ("preempted", "stopping")
    clock.rest(45)
    assert only().pk == row.pk, "what is about to be freed counts as freed"

    end(fresh, clock.now, lost_gpu_s=2400.0)
    clock.power_w[nodes[0]] = 70.0
    clock.rest(75)
    row = only()
    assert row.is_closed
    assert (row.outcome, Overload.objects.count()) == ("holds", 0)
    assert row.note.startswith("asked to end and to wait again: -2.")
    assert "0.7 GPU·h of work lost" in row.note


@pytest.mark.slow
def test_those_that_may_not_be_preempted_go_last(fleet: SmallFleet, clock: Clock) -> None:
    nodes = fleet.nodes_of(RACK)
    clock.power_w |= dict.fromkeys(nodes, WORK_W)
    running(fleet, "kept", nodes[:1], now=clock.now, job_class=INFERENCE,
            asks={"preemptible": False}, attempt={"checkpoint_at": clock.at})  # fmt: skip
    goes = running(fleet, "goes", nodes[1:], now=clock.now, job_class=INFERENCE)
    Rack.objects.update(budget_w=8_000.0)
    snapshot.invalidate()
    clock.step()
    clock.rest(45)
    assert only().attempt == goes


def test_a_preempted_job_saves_and_ends_and_one_that_ends_already_is_left(
    fleet: SmallFleet, clock: Clock
) -> None:
    attempt = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    clock.read()

    def preempt() -> list[Directive]:
        return actions.preempt([attempt.key], for_key="urgent/train", why="gives way", now=clock.at)

    (row,) = preempt()
    assert (row.owner, row.cause) == ("preemption", "urgent/train")
    assert preempt() == []
    clock.step()
    assert signals(attempt) == [("checkpoint", None)]
    assert Gang.objects.get(key=attempt.key).state == "go"
    # It does not answer: when its time is up it is ended all the same.
    clock.rest(90)
    assert Gang.objects.get(key=attempt.key).state == "stopping"


# --- Restrictions ---------------------------------------------------------------------------------


def test_a_restriction_on_batches_reaches_the_jobs_in_its_scope_and_ends_with_it(
    fleet: SmallFleet, clock: Clock
) -> None:
    here = running(fleet, "here", fleet.nodes_of(RACK), now=clock.now)
    there = running(fleet, "there", fleet.nodes_of(OTHER_RACK), now=clock.now)
    clock.obedient = [here, there]
    restrict(clock, RestrictionKind.MAX_BATCH_SCALE, Scope(ScopeKind.RACK, RACK), 0.6)
    clock.step()
    assert signals(here) == [("set_batch_scale", 0.6)]
    assert signals(there) == []
    assert only().cause.startswith("restriction:")
    lift(clock)
    clock.step()
    assert signals(here)[-1] == ("set_batch_scale", 1.0)
    assert only().ended_why == "the restriction has ended"


def test_a_drained_rack_is_left_by_those_that_can_be_moved(fleet: SmallFleet, clock: Clock) -> None:
    nodes = fleet.nodes_of(RACK)
    goes = running(fleet, "goes", nodes[:1], now=clock.now)
    running(fleet, "stays", nodes[1:], now=clock.now, asks={"preemptible": False})
    restrict(clock, RestrictionKind.DRAIN, Scope(ScopeKind.RACK, RACK))
    clock.step()
    assert only().attempt == goes
    assert only().reason == "rack oslo/A01 is being drained: too hot"


def test_a_cap_that_a_job_was_let_go_under_is_set_on_its_gpus_and_lifted_with_it(
    fleet: SmallFleet, clock: Clock
) -> None:
    node = fleet.nodes_of(RACK)[0]
    attempt = running(fleet, "capped", [node], now=clock.now, placement={"power_cap_w": 450.0})
    clock.step()
    row = Restriction.objects.get()
    assert (row.kind, row.scope, row.value) == (
        "power_cap_w", Scope(ScopeKind.NODE, node), 450.0,
    )  # fmt: skip
    assert (row.owner, row.cause, row.state) == (CAP_OWNER, attempt.key, "in_force")
    clock.step()
    assert Restriction.objects.count() == 1
    end(attempt, clock.now, "succeeded")
    clock.step()
    assert Restriction.objects.get().state == "released"


def test_a_gang_on_a_part_of_a_node_caps_no_others_gpus(fleet: SmallFleet, clock: Clock) -> None:
    node = fleet.nodes_of(RACK)[0]
    placement = {"power_cap_w": 450.0, "gpus": {node: [1, 2]}}
    running(fleet, "half", [node], now=clock.now, placement=placement)
    clock.step()
    scopes = set(Restriction.objects.values_list("scope_kind", "scope_name"))
    assert scopes == {("gpu", f"{node}/1"), ("gpu", f"{node}/2")}


# --- Playbooks ------------------------------------------------------------------------------------


def asked(clock: Clock, kind: str, scope: Scope, **arguments: Any) -> Asked:
    """Have a playbook ask for something, as its step does."""
    run = PlaybookRun.objects.first() or make_run(make_playbook())
    playbooks.issue(
        run, f"{Asked.objects.count()}", kind=kind, scope=scope, arguments=arguments,
        until=clock.at + timedelta(minutes=5), now=clock.at,
    )  # fmt: skip
    return Asked.objects.latest("pk")


def test_a_playbooks_checkpoint_is_written_and_reported(fleet: SmallFleet, clock: Clock) -> None:
    here = running(fleet, "here", fleet.nodes_of(RACK), now=clock.now)
    running(fleet, "there", fleet.nodes_of(OTHER_RACK), now=clock.now)
    row = asked(clock, "checkpoint", Scope(ScopeKind.RACK, RACK))
    clock.step()
    row.refresh_from_db()
    assert (row.state, row.note) == ("acknowledged", "1 running job in rack oslo/A01")
    assert signals(here) == [("checkpoint", None)]
    obey(here)
    clock.step()
    clock.step()
    row.refresh_from_db()
    assert (row.state, row.note) == ("verdict", "1 holds")
    assert [line["state"] for line in row.ledger] == [
        "issued", "acknowledged", "applied", "measured", "verdict",
    ]  # fmt: skip


def test_where_nothing_runs_a_playbook_does_not_wait(fleet: SmallFleet, clock: Clock) -> None:
    row = asked(clock, "checkpoint", Scope(ScopeKind.RACK, RACK))
    clock.step()
    row.refresh_from_db()
    assert [line["state"] for line in row.ledger][:3] == ["issued", "acknowledged", "applied"]
    assert "0 running jobs" in row.ledger[2]["note"]


def test_what_nobody_does_within_its_time_is_refused(fleet: SmallFleet, clock: Clock) -> None:
    running(fleet, "deaf", fleet.nodes_of(RACK), now=clock.now)
    row = asked(clock, "checkpoint", Scope(ScopeKind.SITE, "oslo"))
    clock.step()
    clock.now += 300
    clock.step()
    row.refresh_from_db()
    assert row.state == "refused"
    assert "none of 1 jobs has done it" in row.note


def test_what_a_playbook_takes_back_is_over(fleet: SmallFleet, clock: Clock) -> None:
    running(fleet, "here", fleet.nodes_of(RACK), now=clock.now)
    row = asked(clock, "checkpoint", Scope(ScopeKind.JOB, "here"))
    clock.step()
    playbooks.withdraw(row.key, why="the incident is over", now=clock.at)
    clock.step()
    assert only().ended_why == "the incident is over"
    assert only().outcome in ("", "not_applied")


def test_a_playbook_moves_jobs_to_another_site(fleet: SmallFleet, clock: Clock) -> None:
    attempt = running(fleet, "here", fleet.nodes_of(RACK), now=clock.now)
    row = asked(clock, "migrate", Scope(ScopeKind.SITE, "oslo"), to="regional-fallback")
    clock.step()
    assert Job.objects.get().fallback_state == "regional-fallback"
    assert (only().kind, only().owner) == ("resume_at_site", "fallback")
    clock.obedient = [attempt]
    clock.step()
    end(attempt, clock.now)
    clock.rest(75)
    row.refresh_from_db()
    assert row.state in ("applied", "verdict")
    assert JobFallback.objects.get().home == "oslo"


# --- Lost sites -----------------------------------------------------------------------------------


@pytest.fixture
def two(clean_stores: None) -> Clock:
    made = Clock(small_fleet(racks_per_row=1, rows=("A",), nodes_per_rack=1))
    made.read()
    return made


def leave(two: Clock, **asks: Any) -> Attempt:
    """Have a job run in Oslo, from which then nothing is heard."""
    attempt = running(
        two.fleet, "llama", ["oslo-a01-n1"], now=two.now,
        asks={"cross_site_checkpoint": True, **asks},
    )  # fmt: skip
    two.step()
    two.silent = {"oslo-a01-n1"}
    return attempt


def test_when_its_site_is_gone_a_job_goes_on_elsewhere_and_comes_back(two: Clock) -> None:
    attempt = leave(two)
    two.rest(45)
    two.rest(45)
    two.run(45, until=lambda: Job.objects.get().fallback_state == "regional-fallback")
    event = JobEvent.objects.get(kind="fallback")
    assert "nothing is heard from its site" in event.text
    assert event.data["evidence"]["site_silent_share"] == 1.0
    attempt.refresh_from_db()
    assert attempt.outcome == "preempted"
    row = Directive.objects.get(kind="resume_at_site")
    assert row.reason.startswith("goes on by regional-fallback")
    end(attempt, two.now, "lost")
    two.silent = set()
    two.look(360)
    assert Job.objects.get().fallback_state == "primary-site"
    assert JobEvent.objects.filter(kind="fallback").count() == 2


def test_two_short_silences_are_not_one_long_one(two: Clock) -> None:
    def is_open() -> bool:
        return JobFallback.objects.exclude(open_since={}).exists()

    leave(two)
    two.run(90, until=is_open)
    assert is_open()
    two.silent = set()
    two.run(30, until=lambda: not is_open())
    assert not is_open()
    # After more than the silence that it takes to leave.
    two.run(90)
    heard = two.now
    two.silent = {"oslo-a01-n1"}
    two.run(90, until=is_open)
    assert min(JobFallback.objects.get().open_since.values()) > heard
    assert Job.objects.get().fallback_state == "primary-site"


def test_while_the_server_was_away_itself_no_site_was_silent(two: Clock) -> None:
    leave(two)
    two.run(90, until=lambda: JobFallback.objects.exclude(open_since={}).exists())
    before = two.now
    two.now += 600
    two.step()  # hears the other site, and not yet this one
    assert Job.objects.get().fallback_state == "primary-site"
    assert min(JobFallback.objects.get().open_since.values()) > before
    two.run(90, until=lambda: Job.objects.get().fallback_state == "regional-fallback")


@pytest.mark.slow
def test_a_job_that_cannot_go_on_elsewhere_stays(two: Clock) -> None:
    leave(two, cross_site_checkpoint=False)
    two.rest(45)
    two.rest(90)
    assert Job.objects.get().fallback_state == "primary-site"
    assert not Directive.objects.filter(kind="resume_at_site").exists()


def falls_back(two: Clock) -> bool:
    """Say whether a job whose site fell silent is away from it after a while."""
    two.rest(45)
    two.rest(45)
    two.run(45, until=lambda: Job.objects.get().fallback_state == "regional-fallback")
    return Job.objects.get().fallback_state == "regional-fallback"


def test_a_verified_checkpoint_elsewhere_counts_whatever_was_declared(two: Clock) -> None:
    leave(two, cross_site_checkpoint=False, checkpoint_interval_s=600.0)
    make_fact("llama", Site.objects.get(name="oslo"), step=90)
    make_fact("llama", Site.objects.get(name="bergen"), step=60)
    assert falls_back(two)
    event = JobEvent.objects.get(kind="fallback")
    assert "; its checkpoint of step 60 is whole at bergen, verified " in event.text
    told = Directive.objects.get(kind="resume_at_site")
    assert "its checkpoint of step 60 is whole at bergen" in told.reason


def test_what_is_only_declared_is_said_to_be(two: Clock) -> None:
    leave(two, checkpoint_interval_s=600.0)
    make_fact("llama", Site.objects.get(name="oslo"), step=90)
    assert falls_back(two)
    text = JobEvent.objects.get(kind="fallback").text
    assert text.endswith("; that its checkpoints are elsewhere is declared, not verified")


@pytest.mark.slow
def test_a_site_that_was_found_without_a_checkpoint_is_not_gone_to(two: Clock) -> None:
    leave(two, cross_site_checkpoint=True, checkpoint_interval_s=600.0)
    nothing: dict[str, Any] = {
        "epoch": None,
        "step": None,
        "saved_at": None,
        "verified_at": None,
        "digest": "",
    }
    fact = make_fact("llama", Site.objects.get(name="bergen"), **nothing)
    two.rest(45)
    two.rest(90)
    assert Job.objects.get().fallback_state == "primary-site"
    # A day later that says nothing any more.
    CheckpointFact.objects.filter(pk=fact.pk).update(received_at=two.at - timedelta(days=2))
    assert falls_back(two)


def test_it_does_not_come_back_before_its_home_has_what_was_saved_elsewhere(two: Clock) -> None:
    attempt = leave(two)
    assert falls_back(two)
    end(attempt, two.now, "lost")
    make_fact("llama", Site.objects.get(name="bergen"), epoch=2, lease_epoch=2, step=500)
    home = make_fact("llama", Site.objects.get(name="oslo"), epoch=1, step=800)
    two.silent = set()
    two.look(600)
    assert Job.objects.get().fallback_state == "regional-fallback"
    CheckpointFact.objects.filter(pk=home.pk).update(epoch=2, step=500)
    two.look(360)
    assert Job.objects.get().fallback_state == "primary-site"
