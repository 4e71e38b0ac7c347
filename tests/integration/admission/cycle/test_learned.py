"""What running attempts draw, what is learned of it, and how estimates come out."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from accounts.roles import Role
from admission.allocation import open_attempts
from admission.core.cycle.calibration import Estimate, Given
from admission.jobs.models import Attempt, Phase, Project
from admission.learned import draws, forecasts, profiles, shares
from admission.learned.models import Draw, DrawProfile, StartForecast
from policies import current
from policies.scopes import ScopeKind
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import (
    cycle,
    end,
    machines_of,
    phase_of,
    queued,
    start,
)

#: Four GPUs at 400 W, and the host of a node that they fill.
NODE_W = 1600.0 + 600.0 + 1600 / 2800 * 1400.0
IMAGE = "train@sha256:" + "ab" * 32


def run_and_read(fleet: SmallFleet, name: str, times: int, *, begin: float) -> float:
    """Let a job go, and read it so often, 20 s apart; return when it was read last."""
    job = queued(name, gpus=4, asks={"gpu_peak_w": 700.0})
    job.spec["phases"][0]["artifacts"] = {"image": IMAGE}
    job.save()
    cycle(begin)
    start(name)
    Attempt.objects.update(started_at=datetime.fromtimestamp(begin, UTC))
    for step in range(times):
        fleet.report(at=begin + 20 * step, power_w=400.0)
        assert draws.observe(begin + 20 * step) == 1
    return begin + 20 * (times - 1)


def test_a_reservation_comes_down_to_what_was_read(fleet: SmallFleet) -> None:
    begin = time.time()
    at = run_and_read(fleet, "first", 40, begin=begin)
    draw = Draw.objects.get()
    assert (draw.image, draw.model) == (IMAGE, "H100")
    assert draw.p99_w == [pytest.approx(NODE_W / 4, abs=25)]
    assert draw.read_s == [pytest.approx(800.0, rel=0.1)]
    current.invalidate()
    open_attempts.invalidate()
    powers = current.headroom(at).powers[ScopeKind.NODE]
    (peak_w,) = Attempt.objects.get().placement["peak_w"].values()
    assert powers.drawn_w.max() < powers.reserved_w.max() < peak_w


def test_what_was_read_before_a_start_is_not_its_draw(fleet: SmallFleet) -> None:
    begin = time.time()
    queued("first", gpus=4, asks={"gpu_peak_w": 700.0})
    cycle(begin)
    start("first")
    Attempt.objects.update(started_at=datetime.fromtimestamp(begin, UTC))
    # As of a job that has begun a moment ago: its GPUs were read at rest, once after its start.
    for read_at, seen_at in ((begin - 2, begin + 1), (begin + 2, begin + 10)):
        fleet.report(at=read_at, power_w=70.0)
        assert draws.observe(seen_at) == 1
        assert Draw.objects.get().read_s == [0.0]
    fleet.report(at=begin + 25, power_w=400.0)
    draws.observe(begin + 25)
    draw = Draw.objects.get()
    assert draw.read_s == [pytest.approx(15.0, abs=0.1)]
    assert draw.mean_w == [pytest.approx(NODE_W / 4, abs=25)]


def test_what_is_paused_keeps_what_it_was_seen_to_draw(fleet: SmallFleet) -> None:
    at = run_and_read(fleet, "first", 3, begin=time.time())
    before = Draw.objects.get()
    Phase.objects.update(state=Phase.State.PAUSED)
    open_attempts.invalidate()  # a test is one transaction, by which rows are told apart
    fleet.report(at=at + 20, power_w=70.0)
    assert draws.observe(at + 20) == 0
    Phase.objects.update(state=Phase.State.RUNNING)
    open_attempts.invalidate()
    fleet.report(at=at + 40, power_w=400.0)
    assert draws.observe(at + 40) == 1
    assert Draw.objects.get().p99_w == before.p99_w


def test_what_ended_is_learned_from_once(fleet: SmallFleet) -> None:
    begin = time.time()
    at = datetime.fromtimestamp(run_and_read(fleet, "first", 3, begin=begin), UTC)
    assert profiles.learn(at) == 0
    end("first", Phase.State.SUCCEEDED)
    Attempt.objects.update(ended_at=datetime.fromtimestamp(begin, UTC) + timedelta(hours=1))
    assert [profiles.learn(at) for _ in range(2)] == [1, 0]
    profile = DrawProfile.objects.get()
    assert (profile.project.name, profile.image, profile.attempts) == ("vision", IMAGE, 1)
    # An hour of the two that it had asked for.
    assert profile.run_shares == [pytest.approx(0.5)]
    assert profiles.run_shares() == {"vision": pytest.approx(0.5)}
    machines_of(fleet, at=datetime.fromtimestamp(begin, UTC) + timedelta(seconds=60))
    fleet.report(at=begin + 60, power_w=70.0, util=0.0)
    queued("second", gpus=4)
    cycle(begin + 60)
    second = phase_of("second")
    assert second.expected_end_at is not None
    assert second.expected_end_at.timestamp() == pytest.approx(begin + 60 + 3600, abs=5)


def test_profiles_are_shown_to_those_who_may_see_them(fleet: SmallFleet) -> None:
    begin = time.time()
    run_and_read(fleet, "first", 3, begin=begin)
    end("first", Phase.State.FAILED)
    profiles.learn(datetime.fromtimestamp(begin, UTC))
    (row,) = api_client().get("/api/v1/draw-profiles?project=vision").json()["results"]
    assert (row["project"], row["model"], row["attempts"]) == ("vision", "H100", 1)
    assert row["reserved_w"] == pytest.approx(1.1 * row["p99_w"])
    assert row["run_share"] is None
    member, other = make_user(Role.ML_USER), make_user(Role.ML_USER)
    Project.objects.get(name="vision").members.add(member)
    client = api_client()
    for user, count in ((member, 1), (other, 0)):
        answer = client.get("/api/v1/draw-profiles", headers=bearer(make_token(user)))
        assert len(answer.json()["results"]) == count
    assert api_client().get("/api/v1/start-estimates").json() == {
        "starts": 0, "within": 0, "share": None,
    }  # fmt: skip


WEEK_S = 7 * 24 * 3600.0


def test_use_is_counted_by_the_second_and_fades() -> None:
    project = Project.objects.create(name="vision")
    ada, bob = (project.pk, "ada"), (project.pk, "bob")
    assert shares.note({ada: 100}, 0.0, WEEK_S) == 1  # from here on it counts
    assert shares.note({ada: 8}, 10.0, WEEK_S) == 0
    assert shares.note({ada: 6, bob: 2}, 100.0, WEEK_S) == 2
    project.refresh_from_db()
    assert project.used_gpu_s == pytest.approx(800.0)
    assert shares.decayed(project, 100.0 + WEEK_S, WEEK_S) == pytest.approx(400.0)
    # What it holds next does not count for the time in which it held nothing.
    assert shares.note({}, 1000.0, WEEK_S) == 3
    assert shares.note({ada: 8}, 1010.0, WEEK_S) == 0
    project.refresh_from_db()
    assert project.used_gpu_s == pytest.approx(800.0, rel=0.01)
    (share,) = shares.project_shares(1000.0, WEEK_S)
    assert share.used_by_user == {"ada": pytest.approx(600.0, rel=0.01)}


def test_a_shorter_half_life_forgets_sooner() -> None:
    project = Project.objects.create(name="vision")
    shares.note({(project.pk, "ada"): 8}, 0.0, 3600.0)
    shares.note({(project.pk, "ada"): 8}, 100.0, 3600.0)
    shares.note({}, 3700.0, 3600.0)
    (share,) = shares.project_shares(3700.0, 3600.0)
    assert share.used_gpu_s == pytest.approx(400.0)
    # Of a user who has used next to nothing no row is kept.
    shares.note({}, 3700.0 + 20 * 3600.0, 3600.0)
    (share,) = shares.project_shares(3700.0 + 20 * 3600.0, 3600.0)
    assert share.used_by_user == {}


def test_of_a_phase_that_began_meanwhile_no_estimate_is_kept(fleet: SmallFleet) -> None:
    now = datetime.now(UTC)
    queued("first")
    phase = phase_of("first")
    Phase.objects.filter(pk=phase.pk).update(state=Phase.State.RUNNING)
    forecasts.note({phase.pk: Estimate(60.0, 120.0, 300.0, Given(8, 70.0, 110.0, 250.0))}, now)
    assert not StartForecast.objects.exists()


def test_the_first_estimate_of_a_wait_is_compared_with_what_came(fleet: SmallFleet) -> None:
    now = datetime.now(UTC)
    queued("first")
    phase = phase_of("first")
    drawn = Given(8, 70.0, 110.0, 250.0)
    forecasts.note({phase.pk: Estimate(60.0, 120.0, 300.0, drawn)}, now)
    forecasts.note({phase.pk: Estimate(1.0, 2.0, 3.0, drawn)}, now + timedelta(seconds=50))
    forecasts.began([phase.pk], now + timedelta(seconds=200))
    forecasts.began([phase.pk], now + timedelta(seconds=900))
    (row,) = StartForecast.objects.all()
    assert (row.p10_s, row.drawn) == (60.0, drawn)
    assert row.began_s == pytest.approx(200.0)
    found = forecasts.calibration()
    assert (found.starts, found.within, found.coverage) == (1, 1, 1.0)
    assert len(found.errors) == 1
    assert forecasts.prune(now + timedelta(days=40)) == 1
    assert forecasts.calibration().starts == 1
