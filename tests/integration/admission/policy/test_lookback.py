"""A new shadow is asked about the day before it, on queue and fleet as they are recorded."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from accounts.roles import Role
from admission.jobs.history import HELD, event
from admission.jobs.models import Attempt, Job, Phase
from admission.policy import lookback
from admission.policy.catalog import POLICIES
from admission.policy.models import AdmissionPolicyVersion, ShadowDecision, ShadowProgress
from fleet.models import Gpu
from policies.documents import life
from policies.documents.models import States
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind
from telemetry import samples
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.builders.readings import write_samples
from tests.integration.admission.cycle.scenes import cycle, queued

ONE_AT_A_TIME = "name: narrow\nadmission: {tuning: {depth: 1}}\n"
HOURS_AGO = 3


@pytest.fixture
def then(fleet: SmallFleet) -> datetime:
    """About three hours ago; since four hours ago all GPUs have been read each minute, idle."""
    now = timezone.now()
    times = [(now - timedelta(minutes=minute)).timestamp() for minute in range(240, 0, -1)]
    for gpu in Gpu.objects.all():
        write_samples(samples.GPU, gpu.pk, times, power_w=70.0, temp_c=30.0, util=0.0, throttle=0)
    # In the midst of a step.
    return now - timedelta(hours=HOURS_AGO, seconds=lookback.STEP_S / 2)


def shadow(text: str) -> AdmissionPolicyVersion:
    return life.promote(POLICIES, "anna", life.draft(POLICIES, "anna", text), States.SHADOW)


def move_back(then: datetime) -> None:
    """Have all that was queued and begun just now have been so at ``then``."""
    come(Phase.objects.exclude(queued_at=None), then)
    Attempt.objects.update(dispatched_at=then + timedelta(seconds=2))


def come(phases: QuerySet[Phase], at: datetime) -> None:
    """Have jobs have been submitted at ``at``, and their phases have come into reach then."""
    Job.objects.filter(phases__in=phases).update(submitted_at=at)
    for phase in phases:
        phase.request["submitted_at"] = at.timestamp()
        phase.queued_at = at
        phase.save(update_fields=["request", "queued_at"])


def told() -> list[tuple[str, str]]:
    rows = ShadowDecision.objects.select_related("phase__job").order_by("phase__job__name")
    return [(row.phase.job.name, row.kind) for row in rows]


def test_a_job_of_three_hours_ago_would_have_waited(then: datetime) -> None:
    queued("first", gpus=4)
    queued("second", gpus=4)
    assert cycle().admitted == 2
    move_back(then)
    shadow(ONE_AT_A_TIME)
    now = timezone.now()
    assert lookback.look_back(now) == 1
    assert told() == [("second", "wait")]
    row = ShadowDecision.objects.get()
    assert row.decided.startswith("begins on 4 GPUs in oslo/A0")
    assert row.cycles == 1
    assert abs(row.first_at - then) <= timedelta(seconds=lookback.STEP_S)
    shown = api_client(Role.OPERATOR).get("/api/v1/admission-policies/narrow/versions/1/shadow")
    body = shown.json()
    assert (body["jobs"], body["jobs_otherwise"]) == (2, 1)
    assert datetime.fromisoformat(body["reconstructed_until"]) == now
    assert body["reconstructed_step_s"] == lookback.STEP_S
    assert len(body["not_recorded"]) == 3


def test_it_is_asked_once(then: datetime) -> None:
    queued("first")
    shadow("name: same\n")
    assert lookback.look_back(timezone.now()) == 1
    assert lookback.look_back(timezone.now()) == 0
    assert ShadowProgress.objects.get().reconstructed_until is not None


def test_the_same_policy_would_have_decided_the_same(then: datetime) -> None:
    queued("first", gpus=4)
    queued("second", gpus=4)
    cycle()
    move_back(then)
    queued("too-large", gpus=64)
    shadow("name: same\n")
    lookback.look_back(timezone.now())
    assert told() == []


def test_what_ran_then_holds_its_gpus(then: datetime) -> None:
    queued("holder", gpus=16)
    assert cycle().admitted == 1
    move_back(then)
    queued("later", gpus=4)
    come(Phase.objects.filter(job__name="later"), then + timedelta(hours=1))
    shadow("name: order\nadmission: {tuning: {max_preemptions: 0}}\n")
    lookback.look_back(timezone.now())
    # Neither begins it while the fleet is full: had the holder been forgotten, both would have.
    assert ("later", "start") not in told()
    assert ("later", "wait") not in told()


def test_what_was_held_by_a_person_is_begun_by_nobody(then: datetime) -> None:
    queued("first", gpus=4)
    job = queued("held", gpus=4)
    Phase.objects.filter(job=job).update(held_by="eva")
    event(job.pk, HELD, "Held by eva", then).save()
    cycle()
    move_back(then)
    shadow(ONE_AT_A_TIME)
    lookback.look_back(timezone.now())
    # Else the policy in force would have begun it, and the one that looks at one job would not.
    assert told() == []


def test_a_restriction_of_then_closes_the_fleet_for_both(then: datetime, fleet: SmallFleet) -> None:
    queued("first", gpus=4)
    queued("second", gpus=4)
    wanted = Wanted(
        kind=RestrictionKind.NO_NEW_LAUNCHES, scope=Scope(ScopeKind.SITE, "oslo"), value=None,
        reason="maintenance", owner="user:eva", cause="maintenance",
        expires_at=then + timedelta(hours=3),
    )  # fmt: skip
    before = then - timedelta(minutes=20)
    store.apply([wanted], now=before)
    move_back(then)
    shadow(ONE_AT_A_TIME)
    lookback.look_back(then + timedelta(hours=1))
    # Neither begins any; the one that looks at one job alone has another reason for the second.
    assert told() == [("second", "reason")]


def test_decisions_of_cycles_keep_the_newest_words(then: datetime) -> None:
    queued("first", gpus=4)
    queued("second", gpus=4)
    shadow(ONE_AT_A_TIME)
    cycle()
    newest = ShadowDecision.objects.get()
    move_back(then)
    lookback.look_back(timezone.now())
    row = ShadowDecision.objects.get()
    assert (row.last_at, row.decided) == (newest.last_at, newest.decided)
    assert (row.cycles, row.first_at < newest.first_at) == (2, True)
