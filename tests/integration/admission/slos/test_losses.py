"""What jobs would lose by a resume at another site, measured from what keepers have told."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from admission.jobs.models import Attempt, Phase
from admission.slos import builtin, measuring
from admission.slos.actions import SLOS
from admission.slos.budget import State
from admission.slos.models import ConditionSample, Slo, SloJudgment
from fleet.models import Site
from telemetry.models import CheckpointFact
from tests.builders.checkpoints import make_fact
from tests.builders.documents import put_in_force
from tests.builders.jobs import make_attempt, make_job

INTERVAL_S = 900.0
#: What a checkpoint takes from oslo to bergen.
SENT_IN_S = 30.0
NOTHING: dict[str, Any] = {"epoch": None, "step": None, "saved_at": None, "verified_at": None}


class World:
    """Jobs that run at oslo, whose checkpoints go to bergen, at a time that is moved by hand."""

    def __init__(self) -> None:
        #: soon after a piece of time has begun
        self.now = time.time() // 300 * 300 + 20
        self.sites = {name: Site.objects.create(name=name) for name in ("oslo", "bergen", "hamar")}

    def at(self, min_ago: float) -> datetime:
        return datetime.fromtimestamp(self.now, UTC) - timedelta(minutes=min_ago)

    def run(self, name: str = "llama", *, ran_min: float = 120, **asks: Any) -> Phase:
        """Return a phase that has run at oslo for so long."""
        interval = {"checkpoint_interval_s": INTERVAL_S, **asks}
        phase = make_job(name, state="running", asks=interval).phases.get()
        make_attempt(phase, {"n1": [0]}, racks=["oslo/A01"], started_at=self.at(ran_min))
        return phase

    def tell(self, job: str, site: str, saved_min_ago: float, **given: Any) -> CheckpointFact:
        """Tell of a checkpoint that was saved so long ago, and reached ``site`` soon after."""
        saved_at = self.at(saved_min_ago)
        verified_at = saved_at + timedelta(seconds=SENT_IN_S)
        fields = {
            "saved_at": saved_at, "verified_at": verified_at, "told_at": self.at(0),
            "received_at": self.at(0), **given,
        }  # fmt: skip
        return make_fact(job, self.sites[site], **fields)

    def step(self, *, uplink_use: float | None = 0.2, minutes: float = 0.0) -> int:
        """Measure so much later, with the links of oslo used so; return how many were judged."""
        self.now += 60 * minutes
        minute = datetime.fromtimestamp(self.now // 60 * 60, UTC)
        for site, use in (("oslo", uplink_use), ("bergen", 0.9), ("hamar", 0.9)):
            ConditionSample.objects.create(at=minute, site=site, uplink_use=use)
        return measuring.step(self.now)


@pytest.fixture
def slo() -> Slo:
    return put_in_force(SLOS, builtin.texts()["checkpoints-elsewhere"])


@pytest.fixture
def world(slo: Slo) -> World:
    return World()


def verdicts() -> dict[str, bool]:
    """Return what was judged, by job."""
    return dict(SloJudgment.objects.values_list("job", "is_good"))


def test_who_would_lose_an_interval_at_most_is_well_and_who_would_lose_more_is_not(
    world: World,
) -> None:
    for name, saved_min_ago in (("quick", 2.0), ("just", 15.4), ("late", 15.6)):
        world.run(name)
        world.tell(name, "oslo", 1)
        world.tell(name, "bergen", saved_min_ago)
    assert world.step() == 3
    assert verdicts() == {"quick": True, "just": True, "late": False}
    late = SloJudgment.objects.get(job="late")
    assert late.clock_s == pytest.approx(15.6 * 60)
    assert late.limit_s == pytest.approx(INTERVAL_S + SENT_IN_S)
    assert late.at.timestamp() == pytest.approx(world.now)


def test_time_with_the_uplink_over_half_used_is_left_out(world: World) -> None:
    world.run()
    world.tell("llama", "bergen", 60)
    assert world.step(uplink_use=0.51) == 0
    assert world.step(uplink_use=None, minutes=1) == 0
    # As soon as it holds within the same five minutes, they count.
    assert world.step(uplink_use=0.5, minutes=1) == 1


def test_while_the_wan_is_cut_the_share_goes_down_as_the_checkpoint_ages(world: World) -> None:
    world.run()
    world.tell("llama", "bergen", 1)
    shares = []
    for minutes in (0, 5, 5, 5, 5, 5):
        assert world.step(uplink_use=0.0, minutes=minutes) == 1
        (status,) = measuring.statuses(world.at(0))
        shares.append(status.health.good_share)
    # It is 1, 6 and 11 min old, then 16 and more.
    assert shares == pytest.approx([1, 1, 1, 3 / 4, 3 / 5, 3 / 6])
    assert status.health.state is State.MISSED
    # A day later it is as lost as before.
    assert world.step(uplink_use=0.0, minutes=60 * 30) == 1
    assert not SloJudgment.objects.latest("at").is_good
    # Until the link is back and something has come.
    CheckpointFact.objects.update(saved_at=world.at(1), verified_at=world.at(0))
    world.step(minutes=5)
    assert SloJudgment.objects.latest("at").is_good


def test_of_whom_nobody_tells_what_is_elsewhere_nothing_is_said(world: World) -> None:
    world.run("silent")
    world.run("only-at-home")
    world.tell("only-at-home", "oslo", 1)
    world.run("told-before-it-began", ran_min=5)
    world.tell("told-before-it-began", "bergen", 60, told_at=world.at(10))
    world.run("other-run-elsewhere")
    world.tell("other-run-elsewhere", "oslo", 1)
    world.tell("other-run-elsewhere", "bergen", 1, run="of-before", told_at=world.at(60))
    assert world.step() == 0


def test_of_whom_it_is_not_known_where_it_runs_nothing_is_said(world: World) -> None:
    attempt = world.run().attempts.get()
    attempt.placement["sites"] = []
    attempt.save(update_fields=["placement"])
    world.tell("llama", "oslo", 60)
    always = builtin.texts()["checkpoints-elsewhere"].replace("when: uplink_use <= 0.5\n", "")
    put_in_force(SLOS, always)
    assert world.step() == 0


def test_who_states_no_interval_is_left_out(world: World) -> None:
    world.run(checkpoint_interval_s=None)
    world.tell("llama", "bergen", 1)
    assert world.step() == 0


def test_what_has_ended_loses_nothing_any_more(world: World) -> None:
    world.run()
    world.tell("llama", "bergen", 60)
    Attempt.objects.update(state=Attempt.State.ENDED, ended_at=world.at(1))
    assert world.step() == 0


def test_where_nothing_is_elsewhere_all_of_the_run_is_lost(world: World) -> None:
    for name, ran_min in (("new", 29), ("old", 31)):
        world.run(name, ran_min=ran_min)
        world.tell(name, "bergen", 0, **NOTHING)
    world.step()
    # The first one may be on its way for one more interval.
    assert verdicts() == {"new": True, "old": False}


def test_the_latest_at_any_other_site_counts(world: World) -> None:
    world.run()
    world.tell("llama", "oslo", 1)
    world.tell("llama", "bergen", 60)
    world.tell("llama", "hamar", 5)
    world.step()
    assert SloJudgment.objects.get().clock_s == pytest.approx(5 * 60)


def test_only_time_in_which_it_ran_is_lost(world: World) -> None:
    phase = world.run(ran_min=4)
    first = phase.attempts.get()
    make_attempt(
        phase, {"n1": [0]}, racks=["oslo/A01"], state=Attempt.State.ENDED,
        outcome=Attempt.Outcome.PREEMPTED, started_at=world.at(200), ended_at=world.at(100),
    )  # fmt: skip
    assert first.ended_at is None
    # Saved three minutes before it was preempted; it stood still for 96.
    world.tell("llama", "bergen", 103)
    world.step()
    assert SloJudgment.objects.get().clock_s == pytest.approx(7 * 60)


def test_each_five_minutes_count_once_whoever_measures_and_however_often(world: World) -> None:
    world.run()
    world.tell("llama", "bergen", 1)
    assert world.step() == 1
    assert world.step(minutes=1) == 0
    # As after a step that died before it noted how far it had come.
    Slo.objects.update(judged_at=None)
    assert world.step(minutes=1) == 0
    assert world.step(minutes=3) == 1
    # What nobody looked at is left out.
    assert world.step(minutes=60) == 1
    assert SloJudgment.objects.count() == 3


def test_a_step_takes_few_queries_however_many_jobs_run(world: World) -> None:
    counts = []
    for first, last in ((0, 3), (3, 20)):
        for number in range(first, last):
            world.run(f"job-{number}")
            world.tell(f"job-{number}", "bergen", 1)
        with CaptureQueriesContext(connection) as queries:
            assert world.step(minutes=5) == last
        counts.append(len(queries))
    assert counts[1] <= counts[0]
