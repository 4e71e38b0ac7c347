"""The cycle: from a queue in the database to work that was dispatched, and why the rest waits."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import NoReturn

import pytest
from django.utils import timezone
from prometheus_client import REGISTRY

from admission.allocation import open_attempts
from admission.cycle import estimating, live
from admission.directives.actions import preempted_by_project
from admission.directives.models import Directive
from admission.executors.models import Gang, Runner
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from admission.learned import forecasts
from admission.policy.catalog import POLICIES
from admission.queue import queue_status
from fleet import snapshot
from fleet.models import Node
from policies import current
from policies.restrictions.kinds import RestrictionKind
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import api_client
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import (
    attempts,
    cycle,
    end,
    idle,
    nodes_of,
    phase_of,
    queued,
    restrict,
    start,
)


def test_what_fits_is_let_go_and_handed_over(fleet: SmallFleet) -> None:
    queued("first", gpus=4)
    done = cycle()
    assert (done.admitted, done.waiting) == (1, 0)
    phase, attempt = phase_of("first"), Attempt.objects.get()
    assert (phase.state, phase.reason) == (Phase.State.STARTING, "")
    assert phase.job.state == Job.State.RUNNING
    assert attempt.key == Gang.objects.get().key == "first/train/1"
    assert [len(gpus) for gpus in attempt.placement["gpus"].values()] == [4]
    event = JobEvent.objects.get(kind="dispatched")
    assert event.text.startswith("Let go on 4 GPUs of 1 node in oslo/A0")
    assert [passed for _, passed, _ in event.data["trace"]] == [True] * 6


def test_an_attempt_is_of_the_twin_where_all_of_its_machines_are(fleet: SmallFleet) -> None:
    first, *others = sorted(fleet.nodes)
    Runner.objects.exclude(node=first).update(is_simulated=True)
    # What a node had before says nothing: another store is another machine.
    before = timezone.now() - timedelta(hours=1)
    Runner.objects.create(
        node_id=fleet.nodes[first].pk, node=first, agent="a", store="old", seen_at=before,
        is_simulated=True,
    )  # fmt: skip
    for name in fleet.nodes:
        queued(f"on-{name}")
    cycle()
    of = {next(iter(row.placement["nodes"])): row.executor for row in Attempt.objects.all()}
    assert of == {first: "local"} | dict.fromkeys(others, "twin")


def test_what_was_let_go_once_is_not_let_go_again(fleet: SmallFleet) -> None:
    queued("first")
    assert [cycle().admitted for _ in range(3)] == [1, 0, 0]
    assert attempts() == ["first/train/1"]


def test_a_phase_that_waits_again_gets_a_new_attempt(fleet: SmallFleet) -> None:
    queued("first")
    cycle()
    end("first", Phase.State.QUEUED)
    cycle()
    assert attempts() == ["first/train/1", "first/train/2"]
    assert Attempt.objects.open().get().number == 2


def test_what_waits_says_why_in_the_queue_in_the_row_and_in_the_history(fleet: SmallFleet) -> None:
    queued("large", gpus=64)
    queued("second", gpus=32, waited=timedelta(minutes=50))
    for _ in range(2):
        now = time.time()
        assert cycle(now).admitted == 0
    waiting = phase_of("second")
    assert waiting.reason == JobEvent.objects.get(job=waiting.job, kind="reason").data["token"]
    assert waiting.reason_since is not None
    found = queue_status.read()
    assert found is not None
    assert (found.waiting, found.running, found.at) == (2, 0, now)
    assert sum(each.count for each in found.counts) == 2
    assert max(each.oldest_s for each in found.counts) == pytest.approx(3000, abs=30)
    assert queue_status.order() == ["second/train", "large/train"]
    pending_status = queue_status.pending_statuses(["large/train", "nobody"])["large/train"]
    assert (pending_status.position, pending_status.reasons[0].token) == (
        2,
        phase_of("large").reason,
    )
    assert pending_status.trace[-1].passed is False
    assert _shown(phase_of("large").reason) == sum(
        each.count for each in found.counts if each.reason == phase_of("large").reason
    )
    # That it never fits is no change, and no news.
    assert JobEvent.objects.filter(kind="reason").count() == 2


def test_a_phase_after_another_waits_for_it(fleet: SmallFleet) -> None:
    queued("pipe", phases={"prepare": (), "train": ("prepare",)})
    cycle()
    train = Phase.objects.get(name="train")
    assert (train.state, train.reason) == (Phase.State.WAITING, "DependencyPending")
    assert (
        "prepare" in queue_status.pending_statuses(["pipe/train"])["pipe/train"].reasons[0].sentence
    )


def test_gpus_of_somebody_else_are_not_free(fleet: SmallFleet) -> None:
    busy = nodes_of(fleet)[:3]
    fleet.report(only=busy, power_w=400.0, util=90.0)
    for number in range(2):
        queued(f"job-{number}")
    assert cycle().admitted == 1
    assert list(Attempt.objects.get().placement["gpus"]) == [nodes_of(fleet)[3]]
    assert phase_of("job-1").reason == "GpuShortage"


@pytest.mark.parametrize("what", ["machines", "readings"])
def test_where_nobody_would_run_it_or_nothing_is_read_nothing_is_let_go(
    fleet: SmallFleet, what: str
) -> None:
    now = time.time()
    if what == "machines":
        Runner.objects.update(seen_at=timezone.now() - timedelta(hours=1))
    else:
        now += 60
        Runner.objects.update(seen_at=timezone.now() + timedelta(minutes=1))
    queued("first")
    assert cycle(now).admitted == 0
    assert phase_of("first").reason != ""


def test_a_hold_or_a_restriction_keeps_it(fleet: SmallFleet) -> None:
    queued("held")
    Phase.objects.update(held_by="ada", hold_reason="looks odd")
    queued("kept")
    restrict(RestrictionKind.NO_NEW_LAUNCHES, Scope(ScopeKind.SITE, "oslo"))
    assert cycle().admitted == 0
    assert (phase_of("held").reason, phase_of("kept").reason) == ("OnHold", "Restricted")


def test_a_quota_holds_for_what_runs_and_what_waits(fleet: SmallFleet) -> None:
    queued("one")
    Project.objects.update(gpu_quota=4)
    queued("two")
    assert cycle().admitted == 1
    assert [phase_of(name).reason for name in ("one", "two")] == ["", "QuotaExceeded"]
    assert _shown("QuotaExceeded") == 1
    end("one", Phase.State.SUCCEEDED)
    assert cycle().admitted == 1
    assert _shown("QuotaExceeded") == 0


COHORT = """\
name: lab
projects: {vision: {gpu_quota: 4, cohort: lab}, speech: {gpu_quota: 4, cohort: lab}}
preemption: {least_runtime_s: 0, reclaim_quota_after_s: 60}
"""


def test_what_is_borrowed_of_a_quota_is_asked_back_and_counted(fleet: SmallFleet) -> None:
    put_in_force(POLICIES, COHORT)
    for name in ("own", "borrowed"):
        queued(name, asks={"preemptible": True})
        assert cycle().admitted == 1
        start(name)
    # Before those came that wait now.
    Attempt.objects.update(started_at=timezone.now() - timedelta(hours=1))
    open_attempts.invalidate()
    queued("more")
    queued("due", project="speech")
    cycle()
    assert {name: phase_of(name).reason for name in ("more", "due")} == dict.fromkeys(
        ("more", "due"), "QuotaExceeded"
    )
    (told,) = Directive.objects.filter(owner="preemption")
    assert (told.attempt.phase.job.name, told.cause) == ("borrowed", "due/train")
    assert "asks back of its quota what others borrow" in told.reason
    now = time.time()
    assert preempted_by_project(now) == {"vision": 1}
    assert preempted_by_project(now + 3700.0) == {}
    # Nobody is told twice.
    cycle()
    assert Directive.objects.filter(owner="preemption").count() == 1


def _shown(reason: str) -> float | None:
    labels = {"job_class": "high-density-training", "reason": reason}
    return REGISTRY.get_sample_value("headroom_admission_queue_length", labels)


# --- Reservations --------------------------------------------------------------------------------


def test_what_was_let_go_is_in_everybodys_headroom(fleet: SmallFleet) -> None:
    queued("first", gpus=4)
    client, path = api_client(), "/api/v1/headroom?kind=node"
    before = {row["name"]: row for row in client.get(path).json()["rows"]}
    cycle()
    # Within one process at once, in others within three seconds.
    current.invalidate()
    after = {row["name"]: row for row in client.get(path).json()["rows"]}
    (node, peak_w), *_ = Attempt.objects.get().placement["peak_w"].items()
    assert after[node]["power_reserved_w"] == pytest.approx(peak_w)
    assert after[node]["power_headroom_w"] == pytest.approx(
        before[node]["power_headroom_w"] - (peak_w - before[node]["power_load_w"])
    )


def test_two_cycles_in_a_row_do_not_give_the_same_watts_twice(fleet: SmallFleet) -> None:
    """The readings are those of before, and headroom is kept for a second: what is held is not."""
    now = time.time()
    for number in range(8):
        queued(f"job-{number}", gpus=2)
        cycle(now)
    _within_budgets(now)
    placed = [
        (node, gpu)
        for each in Attempt.objects.all()
        for node, gpus in each.placement["gpus"].items()
        for gpu in gpus
    ]
    assert len(placed) == len(set(placed)) > 4


def test_budgets_hold_whatever_comes_and_ends(fleet: SmallFleet) -> None:
    """Invariant 1, through the database: some of it was found by other seeds."""
    rng, now, made = random.Random(7), time.time(), 0
    for step in range(8):
        for _ in range(rng.randrange(3)):
            made += 1
            queued(f"job-{made}", gpus=rng.choice([1, 2, 4, 8]),
                   asks={"gpu_peak_w": rng.choice([300.0, 500.0, 700.0])})  # fmt: skip
        running = list(Phase.objects.filter(state__in=Phase.ACTIVE).order_by("pk"))
        if running and rng.random() < 0.4:
            end(rng.choice(running).job.name, Phase.State.SUCCEEDED)
        fleet.report(at=now + step, power_w=float(rng.choice([70, 400])), util=0.0,
                     only=rng.sample(nodes_of(fleet), 3))  # fmt: skip
        cycle(now + step)
        _within_budgets(now + step)
    assert Attempt.objects.count() > 4


def _within_budgets(now: float) -> None:
    headroom = current.headroom(now + 1.5)
    for kind in (ScopeKind.RACK, ScopeKind.POWER_DOMAIN, ScopeKind.SITE):
        assert (headroom.powers[kind].headroom_w >= -1e-6).all(), kind
    paired = headroom.fleet.domains.pair >= 0
    assert (headroom.failover.headroom_w[paired] >= -1e-6).all()


def test_a_fleet_that_changes_is_seen_by_the_next_cycle_whether_anything_runs_or_not(
    fleet: SmallFleet,
) -> None:
    cycle()
    for name in ("first", "second"):
        Node.objects.update(position_u=3 if name == "first" else 4)
        snapshot.invalidate()
        queued(name)
        assert cycle().admitted == 1
    held = open_attempts.fresh(snapshot.current())
    assert held.fleet is snapshot.current()
    assert [each.key for each in held.attempts] == ["first/train/1", "second/train/1"]


# --- Asking --------------------------------------------------------------------------------------


def test_why_and_what_if_are_answered_by_the_same_code(fleet: SmallFleet) -> None:
    queued("large", gpus=32, asks={"min_gpus": 32})
    cycle()
    live.invalidate()
    found = live.explain("large/train")
    assert found.dominant.token == phase_of("large").reason
    with pytest.raises(KeyError):
        live.explain("nobody/train")
    request = live.decisions().waiting["large/train"].request
    small = live.dry_run(type(request)(**{**vars(request), "key": "s/t", "gpus": 2, "min_gpus": 2}))
    assert small.placement is not None


def _told(name: str) -> queue_status.PendingStatus:
    key = f"{name}/train"
    return queue_status.pending_statuses([key])[key]


def test_who_came_since_the_last_estimate_is_told_so(fleet: SmallFleet) -> None:
    queued("first", gpus=16)
    cycle()
    start("first")
    now = time.time()
    assert estimating.estimate_once(now - 60.0) == 0
    queued("second", gpus=16)
    cycle(now)
    assert _told("second").p50_s is None
    assert "none since it came" in _told("second").basis


def test_where_nobody_waits_estimates_are_made_without_a_look_at_the_fleet(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_asked(now: float) -> NoReturn:
        raise AssertionError("the fleet was read")

    queued("first", gpus=16)
    cycle()
    start("first")
    now = time.time()
    cycle(now)
    with monkeypatch.context() as patched:
        patched.setattr(live, "read_input", not_asked)
        assert estimating.estimate_once(now + 1.0) == 0
    queued("second", gpus=16)
    # The cycle that said that nobody waits is too long ago.
    assert estimating.estimate_once(now + 60.0) == 1


def test_how_jobs_ended_is_what_estimates_draw_from(fleet: SmallFleet) -> None:
    queued("first", gpus=16)
    cycle()
    start("first")
    end("first", Phase.State.SUCCEEDED)
    (ran,) = forecasts.past_runs()
    assert (ran.like.gpus, ran.is_over) == (16, True)
    assert 0.0 <= ran.share < 1.0


def test_a_start_ends_its_estimate(fleet: SmallFleet) -> None:
    queued("first", gpus=16)
    cycle()
    start("first")
    queued("second", gpus=16)
    now = time.time()
    cycle(now)
    assert _told("second").p50_s is None
    assert "no estimates" in _told("second").basis
    assert estimating.estimate_once(now) == 1
    cycle(now + 2)
    early = _told("second")
    assert early.p90_s is not None
    cycle(now + 4)
    later = _told("second")
    assert later.p90_s == pytest.approx(early.p90_s - 2.0)
    end("first", Phase.State.SUCCEEDED)
    idle(fleet)
    cycle(now + 5)
    (forecast,) = phase_of("second").start_forecasts.all()
    assert forecast.began_s == pytest.approx(5.0)
