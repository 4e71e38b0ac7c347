"""What executors say becomes what we think: begun, ended, lost, queued again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import LazySettings

from accounts.models import User
from accounts.roles import Role
from admission.cycle import dispatch
from admission.executors import runners
from admission.executors.models import Gang, Hearing, Runner
from admission.executors.node_queue import NodeQueue
from admission.executors.protocol import SignalKind
from admission.executors.registry import executor_of
from admission.jobs import actions, progress
from admission.jobs.models import Attempt, Job, JobEvent, Phase
from fleet.models import Site
from telemetry.models import CheckpointFact
from tests.builders.checkpoints import make_fact
from tests.integration.admission.executors.conftest import NODES, Scene

pytestmark = pytest.mark.django_db


def test_a_start_is_written_down_when_all_nodes_run_it(scene: Scene) -> None:
    attempt = scene.released()
    first, second = scene.machines
    for _ in range(2):
        first.obey()
        second.obey()
    first.obey()
    first.orders()
    assert scene.reconcile().began == 0
    second.obey()
    second.orders()
    assert scene.reconcile().began == 1
    attempt.refresh_from_db()
    assert attempt.state == "running"
    assert scene.phase(attempt).state == "running"
    event = JobEvent.objects.get(kind="started")
    assert event.text == f"train runs on {NODES[0]}, {NODES[1]} (attempt 1)"
    assert scene.reconcile().began == 0


def test_a_phase_ends_as_its_command_does(scene: Scene) -> None:
    attempt = scene.running()
    scene.end(attempt, outcome="exited", exit_code=0)
    assert (attempt.state, attempt.outcome, attempt.exit_code) == ("ended", "succeeded", 0)
    phase = scene.phase(attempt)
    assert phase.state == "succeeded"
    phase.job.refresh_from_db()
    assert phase.job.state == "succeeded"
    for machine in scene.machines:
        assert machine.holds == {}


def test_a_failure_fails_its_phase_and_says_why(scene: Scene) -> None:
    attempt = scene.running()
    scene.end(attempt, outcome="exited", exit_code=137, text="exit code 137")
    assert (attempt.outcome, attempt.exit_code) == ("failed", 137)
    assert "exit code 137" in attempt.why
    assert attempt.lost_gpu_s >= 0
    assert scene.phase(attempt).state == "failed"


def test_what_output_says_of_a_failure_is_kept_with_its_attempt(scene: Scene) -> None:
    attempt = scene.running()
    first, second = scene.machines
    first.hold(
        attempt.key, "ended", outcome="exited", exit_code=1,
        log_tail="[rank0]: ncclRemoteError: A call failed possibly due to a network error\n",
    )  # fmt: skip
    second.hold(
        attempt.key, "ended", outcome="exited", exit_code=1,
        log_tail="step 7\nKeyError: 'secret-name'\n",
    )  # fmt: skip
    scene.go_round()
    scene.reconcile()
    attempt.refresh_from_db()
    assert attempt.told == {
        "kind": "exception", "node": NODES[1], "text": "KeyError", "before_s": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "report",
    [
        {"outcome": "exited", "exit_code": 0},
        # It was told to stop, and what it says is of that.
        {"outcome": "timed_out"},
    ],
)
def test_what_did_not_fail_by_itself_tells_nothing(scene: Scene, report: dict[str, Any]) -> None:
    attempt = scene.running()
    scene.end(attempt, log_tail="KeyboardInterrupt\n", **report)
    assert attempt.told is None


def test_a_tolerated_failure_is_queued_again_with_a_wait_that_doubles(scene: Scene) -> None:
    restart = {"tolerance": "failure", "max_restarts": 2, "backoff_s": 10.0}
    waits = []
    for number in (1, 2, 3):
        attempt = scene.running(restart=restart)
        assert attempt.number == number
        scene.end(attempt, outcome="exited", exit_code=1)
        phase = scene.phase(attempt)
        if phase.not_before is not None and phase.state == "queued":
            assert attempt.ended_at is not None
            waits.append((phase.not_before - scene.at).total_seconds())
    assert waits == [pytest.approx(10, abs=0.1), pytest.approx(20, abs=0.1)]
    assert phase.state == "failed"
    assert phase.restarts == 2


def test_a_crash_between_admission_and_executor_is_made_good_once(scene: Scene) -> None:
    attempt = scene.attempt()
    assert scene.reconcile().dispatched == 1
    assert scene.gang(attempt).state == "offered"
    assert scene.gang(attempt).assignments.count() == 2
    assert scene.reconcile().dispatched == 0
    dispatch.dispatch([attempt], scene.now)
    assert scene.gang(attempt).assignments.count() == 2


def test_a_crash_between_submit_and_release_is_made_good(scene: Scene) -> None:
    attempt = scene.attempt()
    executor_of("local").submit([dispatch.work_of(attempt)], scene.now)
    assert scene.gang(attempt).state == "held"
    scene.reconcile()
    assert scene.gang(attempt).state == "offered"


def test_an_executor_is_asked_once_whether_it_has_what_has_not_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    missing = NodeQueue.missing

    def noted(self: NodeQueue, keys: Sequence[str]) -> list[str]:
        asked.append(list(keys))
        return missing(self, keys)

    monkeypatch.setattr(NodeQueue, "missing", noted)
    scene.reconcile()
    attempt = scene.attempt()
    assert scene.reconcile().dispatched == 1
    for _ in range(3):
        assert scene.reconcile().dispatched == 0
    # The one by which it was found, and the one by which it was there.
    assert asked == [[attempt.key]] * 2


def test_that_it_was_offered_is_nothing_new_to_who_released_it(scene: Scene) -> None:
    attempt = scene.released()
    assert executor_of("local").changes() == []
    scene.machines[0].obey()
    scene.machines[0].orders()
    assert [each.key for each in executor_of("local").changes()] == [attempt.key]


def test_a_gang_that_does_not_come_together_is_withdrawn_and_placed_again(
    scene: Scene, settings: LazySettings
) -> None:
    attempt = scene.released()
    scene.machines[0].obey()
    scene.machines[0].orders()
    done = scene.reconcile(settings.WORK_GATHER_S + 1)
    assert (done.ended, done.requeued) == (1, 1)
    attempt.refresh_from_db()
    assert (attempt.outcome, attempt.started_at) == ("withdrawn", None)
    assert attempt.why == f"{NODES[1]} did not take it within 30 s"
    phase = scene.phase(attempt)
    assert (phase.state, phase.restarts) == ("queued", 0)
    # Who had claimed it never starts it.
    assert scene.machines[0].wanted() == {attempt.key: "stop"}


def test_a_machine_that_falls_silent_is_given_up_and_the_gang_queued_again(
    scene: Scene, settings: LazySettings
) -> None:
    settings.WORK_LEASE_S = 60
    attempt = scene.running(restart={"tolerance": "disruption"})
    gangs = Gang.objects.filter(key=attempt.key)
    # Somebody is heard all the while, so it is not our ears.
    scene.listen(60, hears=NODES[0])
    assert gangs.get().state == "go"
    scene.listen(10, hears=NODES[0])
    assert gangs.get().state == "stopping"
    assert scene.machines[0].wanted() == {attempt.key: "stop"}
    scene.machines[0].obey()
    scene.machines[0].obey()
    scene.reconcile()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.outcome) == ("ended", "lost")
    assert "not heard for 60 s" in attempt.why
    assert (scene.phase(attempt).state, scene.phase(attempt).restarts) == ("queued", 1)
    # Heard again, it is told to end what has its successor by now.
    assert scene.machines[1].wanted() == {attempt.key: "stop"}


def test_a_machine_that_is_not_heard_is_told_of_long_before_it_is_given_up(scene: Scene) -> None:
    attempt = scene.running(restart={"tolerance": "disruption"})
    Runner.objects.filter(node=NODES[1]).update(lease_s=60)
    since = Runner.objects.get(node=NODES[1]).seen_at
    scene.listen(35, hears=NODES[0])
    attempt.refresh_from_db()
    assert attempt.unheard == ""
    scene.listen(5, hears=NODES[0])
    attempt.refresh_from_db()
    assert attempt.unheard.startswith(
        f"unknown: nothing heard of {NODES[1]} since {since:%H:%M:%S} UTC; what runs there stands"
    )
    # It holds all that it held, and nobody has its GPUs before the fence does.
    assert (attempt.state, scene.gang(attempt).state) == ("running", "go")
    Runner.objects.filter(node=NODES[1]).update(seen_at=scene.at)
    scene.reconcile()
    attempt.refresh_from_db()
    assert attempt.unheard == ""
    events = attempt.phase.job.events.filter(kind__in=("unheard", "heard")).order_by("pk")
    assert [each.kind for each in events] == ["unheard", "heard"]


def test_a_machine_that_says_how_long_its_work_goes_on_has_the_lease_of_the_policy(
    scene: Scene,
) -> None:
    scene.running()
    assert set(Runner.objects.values_list("lease_s", flat=True)) == {300.0}
    for told_s, lease_s in [(100.0, 200.0), (None, 300.0), (12.0, 60.0)]:
        Runner.objects.update(heard_s=-100.0)
        answer = scene.machines[0].post(runs_for_s=told_s).json()
        assert Runner.objects.get(node=NODES[0]).lease_s == lease_s
        # It is let run for half of the lease in force, never for more than is written down.
        assert answer["fence_s"] == (150.0 if told_s is None else 30.0)


def test_silence_of_everybody_is_not_taken_for_their_end(
    scene: Scene, settings: LazySettings
) -> None:
    settings.WORK_LEASE_S = 60
    attempt = scene.running()
    scene.listen(120)
    assert scene.gang(attempt).state == "go"


def test_a_server_that_was_away_gives_machines_time_to_be_heard(
    scene: Scene, settings: LazySettings
) -> None:
    settings.WORK_LEASE_S = 60
    attempt = scene.running()
    scene.listen(40, hears=NODES[0])
    scene.reconcile(600)
    scene.listen(60, hears=NODES[0])
    assert scene.gang(attempt).state == "go"
    scene.listen(10, hears=NODES[0])
    assert scene.gang(attempt).state == "stopping"


@pytest.mark.parametrize("step_s", [10_800, -10_800])
def test_a_step_of_the_clock_costs_no_machine_its_work_nor_gives_one_more_time(
    scene: Scene, settings: LazySettings, step_s: float
) -> None:
    settings.WORK_LEASE_S = 60
    attempt = scene.running()
    scene.listen(30, hears=NODES[0])
    scene.now += step_s
    scene.listen(30, hears=NODES[0])
    assert scene.gang(attempt).state == "go"
    scene.listen(10, hears=NODES[0])
    assert scene.gang(attempt).state == "stopping"


def test_what_is_heard_after_a_backward_step_of_the_clock_is_written_down(
    scene: Scene, settings: LazySettings
) -> None:
    settings.WORK_LEASE_S = 60
    attempt = scene.running()
    Runner.objects.update(seen_at=scene.at + timedelta(hours=3))
    for _ in range(20):
        for machine in scene.machines:
            machine.orders()
        scene.reconcile(5.0)
    assert scene.gang(attempt).state == "go"


def test_looks_of_workers_on_other_machines_count_no_time_that_may_not_have_passed(
    scene: Scene, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WORK_LEASE_S = 60
    attempt = scene.running()
    for number in range(40):
        up = runners.Uptime(f"machine {number}", 5.0)
        monkeypatch.setattr(runners, "uptime", lambda up=up: up)
        Runner.objects.filter(node=NODES[0]).update(heard_s=Hearing.objects.get().listened_s)
        scene.reconcile(5.0)
    assert scene.gang(attempt).state == "go"


def test_work_that_its_executor_has_lost_is_found(scene: Scene) -> None:
    attempt = scene.running(restart={"tolerance": "disruption"})
    Gang.objects.all().delete()
    done = scene.reconcile(31)
    assert done.ended == 1
    attempt.refresh_from_db()
    assert attempt.outcome == "lost"
    assert scene.phase(attempt).state == "queued"
    assert not Gang.objects.filter(key=attempt.key).exists()


def test_work_that_ended_long_ago_is_dropped_and_its_attempt_stays(scene: Scene) -> None:
    attempt = scene.running()
    scene.end(attempt, outcome="exited", exit_code=0)
    scene.reconcile(6 * 86_400)
    assert Gang.objects.exists()
    scene.reconcile(2 * 86_400)
    assert not Gang.objects.exists()
    assert not Runner.objects.exists()
    attempt.refresh_from_db()
    assert attempt.exit_code == 0


def test_work_that_no_attempt_asks_for_is_stopped(scene: Scene) -> None:
    attempt = scene.running()
    Attempt.objects.filter(pk=attempt.pk).delete()
    assert scene.reconcile(31).orphans == 1
    assert scene.machines[0].wanted() == {attempt.key: "stop"}


def test_the_next_cycle_tells_machines_to_stop_what_was_canceled(scene: Scene) -> None:
    attempt = scene.running()
    user = User.objects.create_user("ada", role=Role.OPERATOR)
    actions.cancel(scene.phase(attempt).job, user, why="", now=scene.at)
    assert scene.gang(attempt).state == "go"
    scene.reconcile(2)
    assert scene.gang(attempt).state == "stopping"
    signals = scene.gang(attempt).signal_seq
    scene.reconcile(2)
    assert scene.gang(attempt).signal_seq == signals  # it is told once
    for _ in range(2):
        scene.go_round()
    scene.reconcile()
    attempt.refresh_from_db()
    assert (attempt.outcome, attempt.why) == ("cancelled", "Cancelled by ada")
    assert scene.phase(attempt).state == "cancelled"


def test_an_attempt_that_was_canceled_before_it_was_dispatched_is_never_started(
    scene: Scene,
) -> None:
    attempt = scene.attempt(outcome="cancelled", why="Cancelled by ada")
    scene.reconcile()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.outcome) == ("ended", "cancelled")
    assert not Gang.objects.exists()


def test_a_preempted_attempt_waits_again_at_once_and_it_is_no_restart(scene: Scene) -> None:
    attempt = scene.running()
    Attempt.objects.filter(pk=attempt.pk).update(outcome="preempted", why="for bigger/train")
    executor_of("local").signal(attempt.key, SignalKind.STOP, scene.now)
    for _ in range(2):
        scene.go_round()
    scene.reconcile()
    attempt.refresh_from_db()
    phase = scene.phase(attempt)
    assert (attempt.outcome, phase.state, phase.restarts) == ("preempted", "queued", 0)
    assert phase.not_before is None


def test_a_pause_and_a_checkpoint_are_seen(scene: Scene) -> None:
    attempt = scene.running(nodes=NODES[:1])
    machine = scene.machines[0]
    saved_at = scene.at - timedelta(seconds=5)
    machine.hold(attempt.key, "paused", checkpoint_at=saved_at.timestamp())
    machine.orders()
    scene.reconcile()
    attempt.refresh_from_db()
    assert scene.phase(attempt).state == "paused"
    assert attempt.checkpoint_at == saved_at
    machine.hold(attempt.key, "running")
    machine.orders()
    scene.reconcile()
    assert scene.phase(attempt).state == "running"


SAID = "as the loop said"


def saves(scene: Scene, attempt: Attempt) -> datetime | str | None:
    """Have the loop say that it has saved; return what is taken for its last checkpoint."""
    said = scene.at - timedelta(seconds=5)
    scene.machines[0].hold(attempt.key, "running", checkpoint_at=said.timestamp())
    scene.machines[0].orders()
    scene.reconcile()
    attempt.refresh_from_db()
    return SAID if attempt.checkpoint_at == said else attempt.checkpoint_at


def test_the_last_checkpoint_is_the_last_that_was_verified_where_that_is_told(
    scene: Scene,
) -> None:
    attempt = scene.running(nodes=NODES[:1])
    began = scene.at - timedelta(hours=1)
    Attempt.objects.filter(pk=attempt.pk).update(started_at=began)
    assert saves(scene, attempt) == SAID
    older, newer = began + timedelta(minutes=10), began + timedelta(minutes=20)
    name = attempt.key.partition("/")[0]
    make_fact(name, Site.objects.all()[0], saved_at=older)
    make_fact(name, Site.objects.create(name="elsewhere"), saved_at=newer)
    assert saves(scene, attempt) == newer
    # Nothing of this attempt is whole yet, only what it resumed from.
    CheckpointFact.objects.update(saved_at=began - timedelta(seconds=1))
    assert saves(scene, attempt) is None
    # Nobody has told since this attempt began.
    CheckpointFact.objects.update(told_at=began - timedelta(seconds=1))
    assert saves(scene, attempt) == SAID
    # What was told so long ago says nothing any more.
    long_ago = scene.at - timedelta(days=2)
    CheckpointFact.objects.update(told_at=scene.at, saved_at=newer, received_at=long_ago)
    assert saves(scene, attempt) == SAID


def test_one_attempt_that_cannot_be_closed_does_not_hold_up_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = scene.running("bad", nodes=NODES[:1])
    good = scene.running("good", nodes=NODES[1:])
    real = progress.phase_ended

    def broken(phase: Phase, *given: Any, job: Job) -> None:
        if job.name == "bad":
            raise RuntimeError("odd")
        real(phase, *given, job=job)

    for machine, attempt in zip(scene.machines, (bad, good), strict=True):
        machine.hold(attempt.key, "ended", outcome="exited", exit_code=0)
        machine.orders()
    with monkeypatch.context() as patched:
        patched.setattr(progress, "phase_ended", broken)
        assert scene.reconcile().failed == [bad.key]
    assert scene.phase(good).state == "succeeded"
    assert scene.phase(bad).state == "running"
    # What was not written down is told again.
    assert scene.reconcile().ended == 1
    assert scene.phase(bad).state == "succeeded"
