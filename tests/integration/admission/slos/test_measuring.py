"""Service levels measured from jobs in the database, under the conditions of their time."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from admission.jobs.history import HELD, RELEASED_HOLD
from admission.jobs.models import Attempt, Phase
from admission.slos import builtin, measuring, sampling
from admission.slos.actions import SLOS
from admission.slos.budget import State
from admission.slos.models import ConditionSample, Slo, SloJudgment
from policies import current
from policies.documents import life
from policies.scopes import ScopeKind
from tests.builders.documents import put_in_force
from tests.builders.fleet import small_fleet
from tests.builders.jobs import make_attempt, make_job, note

STARTS = """name: starts
measure: start
target: 0.9
within: 10m
"""
RESUMES = """name: resumes
measure: cross_site_resume
target: 0.9
within: checkpoint_interval
when: uplink_use < 0.5
"""


@pytest.fixture
def starts() -> Slo:
    return put_in_force(SLOS, STARTS)


def verdicts() -> dict[str, bool]:
    """Return what was judged by the versions in force, by event."""
    found = SloJudgment.objects.filter(slo__state="active")
    return dict(found.values_list("event", "is_good"))


def started(name: str, waited_min: float, **given: Any) -> Phase:
    """Return a phase that waited so long and began just now."""
    job = make_job(name, waited=timedelta(minutes=waited_min), state="running", **given)
    phase = job.phases.get()
    phase.started_at = timezone.now()
    phase.save(update_fields=["started_at"])
    return phase


def sample(minutes: int, *, sites: tuple[str, ...] = ("oslo", "bergen"), **facts: float) -> None:
    """Have the last ``minutes`` been sampled, with these facts at all sites."""
    first = time.time() // 60 * 60 - 60 * minutes
    ConditionSample.objects.bulk_create(
        ConditionSample(at=datetime.fromtimestamp(first + 60 * i, UTC), site=site, **facts)
        for i in range(minutes + 1)
        for site in sites
    )


# --- Conditions ----------------------------------------------------------------------------------


def test_each_minute_is_sampled_once() -> None:
    fleet = small_fleet(sites=("oslo", "bergen"), racks_per_row=2, rows=("A",))
    fleet.report()
    now = time.time() // 60 * 60 + 5
    for at in (now, now + 10, now + 60):
        sampling.keep(current.headroom(at))
    assert ConditionSample.objects.count() == 4
    row = ConditionSample.objects.filter(site="oslo").first()
    assert row is not None
    headroom = current.headroom(now)
    site = headroom.table(ScopeKind.SITE).row("oslo")
    assert row.power_headroom is not None
    assert row.power_headroom <= 1 - site["power_use"] + 1e-9
    assert row.cooling_headroom is not None
    assert row.stale_share == 0.0


def test_the_tightest_of_site_and_feeds_is_what_is_left_of_power() -> None:
    fleet = small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))
    fleet.report()
    headroom = current.headroom(time.time())
    (left,) = sampling.facts_of(headroom)["power_headroom"]
    domains = headroom.table(ScopeKind.POWER_DOMAIN)
    site = headroom.table(ScopeKind.SITE).row("oslo")
    feeds = [domains.row(name)["power_use"] for name in domains.names if "feed" in name]
    assert feeds
    assert left == pytest.approx(1 - max([*feeds, site["power_use"]]))


def test_samples_come_back_as_they_were_kept() -> None:
    sample(2, sites=("oslo",), power_headroom=0.3)
    found = sampling.load(timezone.now() - timedelta(minutes=5), timezone.now())
    assert (len(found.times), found.sites) == (3, ("oslo",))
    assert found.facts["power_headroom"].tolist() == [[0.3]] * 3
    assert math.isnan(found.facts["uplink_use"][0, 0])


# --- Starts --------------------------------------------------------------------------------------


def test_starts_are_judged_once(starts: Slo) -> None:
    started("quick", 5)
    started("slow", 15)
    make_job("waits-long", waited=timedelta(minutes=20))
    make_job("waits-little", waited=timedelta(minutes=2))
    assert measuring.step(time.time()) == 3
    assert verdicts() == {"quick/train": True, "slow/train": False, "waits-long/train": False}
    assert measuring.step(time.time()) == 0
    assert SloJudgment.objects.count() == 3


def test_what_was_late_is_not_good_once_it_begins(starts: Slo) -> None:
    job = make_job("late", waited=timedelta(minutes=20))
    measuring.step(time.time())
    job.phases.update(started_at=timezone.now(), state="running")
    measuring.step(time.time())
    assert verdicts() == {"late/train": False}
    judgment = SloJudgment.objects.get()
    assert judgment.at == job.submitted_at + timedelta(minutes=10)
    assert (judgment.clock_s, judgment.limit_s) == (600.0, 600.0)


def test_a_phase_waits_from_when_those_before_it_have_ended(starts: Slo) -> None:
    job = make_job(
        "chain", waited=timedelta(hours=2), phases={"prepare": (), "train": ("prepare",)}
    )
    prepare, train = job.phases.order_by("index")
    at = job.submitted_at
    prepare.state, prepare.started_at = "succeeded", at + timedelta(minutes=1)
    prepare.ended_at = timezone.now() - timedelta(minutes=5)
    prepare.save()
    train.state, train.started_at = "running", timezone.now()
    train.save()
    measuring.step(time.time())
    assert verdicts() == {"chain/prepare": True, "chain/train": True}


def test_time_on_hold_does_not_count(starts: Slo) -> None:
    phase = started("held", 30)
    at = phase.job.submitted_at
    note(phase.job, HELD, "Held by ada", at=at + timedelta(minutes=1))
    note(phase.job, RELEASED_HOLD, "Let go by ada", at=at + timedelta(minutes=25))
    measuring.step(time.time())
    assert verdicts() == {"held/train": True}


def test_what_is_cancelled_before_it_is_late_is_left_out(starts: Slo) -> None:
    job = make_job("gone", waited=timedelta(minutes=5))
    job.phases.update(state="cancelled", ended_at=timezone.now())
    assert measuring.step(time.time() + 3600) == 0


def test_only_time_under_the_condition_counts() -> None:
    put_in_force(SLOS, STARTS + "when: power_headroom > 0.2\n")
    sample(60, sites=("oslo",), power_headroom=0.1)
    sample(60, sites=("bergen",), power_headroom=0.5)
    started("anywhere", 15)
    started("oslo-only", 15, asks={"sites": ("oslo",)})
    measuring.step(time.time())
    assert verdicts() == {"anywhere/train": False}


def test_the_sample_before_it_begins_speaks_for_its_beginning() -> None:
    put_in_force(SLOS, STARTS.replace("10m", "1m") + "when: power_headroom > 0.2\n")
    minute = time.time() // 60 * 60
    ConditionSample.objects.create(
        at=datetime.fromtimestamp(minute - 180, UTC), site="oslo", power_headroom=0.5
    )
    make_job("late", asks={"submitted_at": minute - 110})
    measuring.step(minute)
    assert verdicts() == {"late/train": False}


# --- Resumes -------------------------------------------------------------------------------------


def cut_short(name: str, *, ended_min_ago: float, resumed_at: str = "bergen") -> Phase:
    """Return a phase that was lost at oslo and began again just now at another site."""
    job = make_job(name, state="running", asks={"checkpoint_interval_s": 900.0})
    phase = job.phases.get()
    now = timezone.now()
    make_attempt(
        phase, {"n1": [0]}, racks=["oslo/A01"], state=Attempt.State.ENDED,
        outcome=Attempt.Outcome.LOST, ended_at=now - timedelta(minutes=ended_min_ago),
    )  # fmt: skip
    if resumed_at:
        make_attempt(phase, {"n2": [0]}, racks=[f"{resumed_at}/A01"], started_at=now)
    return phase


def test_a_resume_elsewhere_is_in_time_within_its_checkpoint_interval() -> None:
    put_in_force(SLOS, RESUMES)
    sample(60, uplink_use=0.2)
    cut_short("quick", ended_min_ago=10)
    cut_short("slow", ended_min_ago=20)
    cut_short("same-site", ended_min_ago=20, resumed_at="oslo")
    cut_short("waits", ended_min_ago=30, resumed_at="")
    measuring.step(time.time())
    assert verdicts() == {"quick/train/1": True, "slow/train/1": False}


def test_links_of_both_sites_have_to_have_room() -> None:
    put_in_force(SLOS, RESUMES)
    sample(60, sites=("oslo",), uplink_use=0.2)
    sample(60, sites=("bergen",), uplink_use=0.9)
    cut_short("slow", ended_min_ago=20)
    assert measuring.step(time.time()) == 0


def test_a_resume_at_the_same_site_is_a_resume() -> None:
    put_in_force(SLOS, "name: any\nmeasure: resume\ntarget: 0.9\nwithin: 15m\n")
    cut_short("same-site", ended_min_ago=10, resumed_at="oslo")
    cut_short("waits", ended_min_ago=20, resumed_at="")
    measuring.step(time.time())
    assert verdicts() == {"same-site/train/1": True, "waits/train/1": False}


def test_what_failed_by_itself_is_no_resume() -> None:
    put_in_force(SLOS, "name: any\nmeasure: resume\ntarget: 0.9\nwithin: 15m\n")
    phase = cut_short("broken", ended_min_ago=10, resumed_at="oslo")
    phase.attempts.filter(number=1).update(outcome=Attempt.Outcome.FAILED)
    assert measuring.step(time.time()) == 0


# --- SloStatus ------------------------------------------------------------------------------------


def test_how_an_objective_stands(starts: Slo) -> None:
    for number in range(9):
        started(f"quick-{number}", 1)
    started("slow", 11)
    measuring.step(time.time())
    (status,) = measuring.statuses(timezone.now())
    assert status.health.good_share == pytest.approx(0.9)
    assert status.health.budget_left == pytest.approx(0.0)
    assert status.health.state is State.MET
    assert status.health.burn_rates["5m"] == pytest.approx(1.0)


def test_a_version_judges_anew_and_a_draft_changes_nothing(starts: Slo) -> None:
    started("quick", 5)
    measuring.step(time.time())
    life.draft(SLOS, "eva", STARTS.replace("10m", "1m"))
    measuring.step(time.time())
    assert verdicts() == {"quick/train": True}
    assert put_in_force(SLOS, STARTS.replace("10m", "2m")).number == 3
    assert verdicts() == {}
    measuring.step(time.time())
    assert verdicts() == {"quick/train": False}


def test_a_change_meanwhile_is_not_judged_by_the_old_text(
    starts: Slo, monkeypatch: pytest.MonkeyPatch
) -> None:
    started("quick", 5)
    load = sampling.load

    def changed_meanwhile(*given: datetime) -> object:
        monkeypatch.setattr(sampling, "load", load)
        put_in_force(SLOS, STARTS.replace("10m", "2m"))
        return load(*given)

    monkeypatch.setattr(sampling, "load", changed_meanwhile)
    measuring.step(time.time())
    assert verdicts() == {}
    measuring.step(time.time())
    assert verdicts() == {"quick/train": False}


def test_a_step_takes_few_queries_however_many_jobs_there_are(starts: Slo) -> None:
    counts = []
    for first, last in ((0, 5), (5, 50)):
        for number in range(first, last):
            make_job(f"job-{number}", waited=timedelta(minutes=20))
        with CaptureQueriesContext(connection) as queries:
            assert measuring.step(time.time()) == last - first
        counts.append(len(queries))
    few, many = counts
    assert many <= few
    assert many < 20


def test_what_no_objective_can_ask_for_is_forgotten(starts: Slo) -> None:
    started("quick", 5)
    measuring.step(time.time())
    sample(1, power_headroom=0.3)
    measuring.prune(timezone.now() + timedelta(days=30))
    assert SloJudgment.objects.exists()
    measuring.prune(timezone.now() + timedelta(days=32))
    assert not SloJudgment.objects.exists()
    assert not ConditionSample.objects.exists()


# --- Those that come with us ---------------------------------------------------------------------


def test_built_in_objectives_are_brought_and_what_people_changed_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(builtin.load()) == set(builtin.texts())
    assert builtin.load() == []
    name = "training-begins"
    put_in_force(SLOS, builtin.texts()[name].replace("12m", "20m"))
    retired = Slo.objects.get(name="training-resumes")
    life.retire(SLOS, "eva", retired, why="no use")
    assert builtin.load() == []
    newer = builtin.texts() | {"experiments-begin": builtin.texts()["experiments-begin"] + "# 2\n"}
    monkeypatch.setattr(builtin, "texts", lambda: newer)
    assert builtin.load() == ["experiments-begin"]
    assert "20m" in Slo.objects.active().get(name=name).text
