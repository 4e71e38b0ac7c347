"""A cycle may die anywhere, and two may run at once: nothing is lost, nothing starts twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.db import connection, transaction

from admission.core.cycle.decide import Decisions, decide
from admission.core.snapshot import Snapshot
from admission.cycle import admit, live, loop, reach
from admission.cycle.loop import Cycle, cycle_once
from admission.executors.models import Gang
from admission.jobs import progress
from admission.jobs.actions import cancel, hold
from admission.jobs.models import Attempt, Job, JobEvent, Phase
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import attempts, cycle, phase_of, queued


class Killed(BaseException):
    """The process is gone: nothing that catches errors catches this."""


def dies_at(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Have the first call of ``target`` be the last thing that the process does."""

    def die(*_args: object, **_options: object) -> Any:
        raise Killed

    monkeypatch.setattr(target, die)


@pytest.mark.parametrize(
    "target",
    [
        "admission.cycle.loop.decide",
        "admission.learned.forecasts.began",
        "admission.cycle.dispatch.dispatch",
        "admission.executors.node_queue.NodeQueue.submit",
        "admission.executors.node_queue.NodeQueue.release",
        "admission.queue.reasons.write",
        "admission.queue.queue_status.publish",
        "admission.directives.step.step",
    ],
)
def test_what_a_cycle_leaves_the_next_one_makes_good(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    for number in range(2):
        queued(f"job-{number}")
    queued("large", gpus=64)
    with monkeypatch.context() as patched:
        dies_at(patched, target)
        with pytest.raises(Killed):
            cycle()
    cycle()
    cycle()
    keys = {"job-0/train/1", "job-1/train/1"}
    assert set(Attempt.objects.values_list("key", flat=True)) == keys
    assert {gang.key: gang.state for gang in Gang.objects.all()} == dict.fromkeys(keys, "offered")
    assert JobEvent.objects.filter(kind="dispatched").count() == 2
    assert [phase_of(f"job-{n}").state for n in range(2)] == [Phase.State.STARTING] * 2
    assert phase_of("large").reason != ""


def test_a_queue_for_which_there_is_no_time_is_worked_off_in_parts(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        queued(f"job-{number}")

    def slow(snapshot: Snapshot) -> Decisions:
        if snapshot.tuning.depth > 1:
            raise SoftTimeLimitExceeded
        return decide(snapshot)

    monkeypatch.setattr(reach, "_LEAST", 1)
    monkeypatch.setattr(loop, "_reach", reach.Reach())
    monkeypatch.setattr(loop, "decide", slow)
    started = []
    for _ in range(12):
        cycle_once(time.time())
        started.append(Attempt.objects.count())
    assert started[:3] == [0, 0, 1]
    assert started[-1] == 4


def test_a_part_that_fails_holds_up_no_other(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued("first")
    queued("large", gpus=64)

    def fail(*_args: object) -> None:
        raise OSError("no route to it")

    monkeypatch.setattr("admission.cycle.reconciliation.reconcile", fail)
    monkeypatch.setattr("admission.queue.queue_status.publish", fail)
    done = cycle_once(time.time())
    assert done is not None
    assert (done.failed, done.admitted) == (["reconcile", "board"], 1)
    assert phase_of("large").reason != ""


def look_and_decide() -> Callable[[], list[Attempt]]:
    """Look and decide now; what is returned writes down what was admitted."""
    now = time.time()
    look = live.read_input(now)
    admitted = decide(look.snapshot).admitted
    return lambda: admit.admit(look, admitted, datetime.fromtimestamp(now, UTC))


def test_of_two_that_have_seen_the_same_only_one_lets_go(fleet: SmallFleet) -> None:
    for number in range(6):
        queued(f"job-{number}")
    first, second = look_and_decide(), look_and_decide()
    assert len(first()) == 4
    with pytest.raises(admit.Overtaken):
        second()
    assert Attempt.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_what_changed_since_it_was_seen_is_left_to_the_next_cycle(fleet: SmallFleet) -> None:
    jobs = {verb: queued(verb) for verb in ("hold", "cancel", "amend", "delete")}
    go = look_and_decide()
    user, now = make_user(), datetime.now(UTC)
    hold(jobs["hold"], user, why="looks odd", now=now)
    cancel(jobs["cancel"], user, why="a mistake", now=now)
    amended = Phase.objects.get(job=jobs["amend"])
    Phase.objects.filter(pk=amended.pk).update(
        request={**amended.request, "gpus": 3, "min_gpus": 3}
    )
    jobs["delete"].delete()
    assert go() == []
    assert cycle().admitted == 1
    (attempt,) = Attempt.objects.all()
    assert [len(gpus) for gpus in attempt.placement["gpus"].values()] == [3]


@pytest.mark.django_db(transaction=True)
def test_what_somebody_is_at_work_on_is_waited_for_by_nobody(fleet: SmallFleet) -> None:
    queued("taken")
    queued("free")
    with transaction.atomic():
        progress.lock(Job.objects.get(name="taken").pk)
        (done,) = in_threads(1, lambda: cycle(time.time()))
    assert isinstance(done, Cycle)
    assert done.admitted == 1
    assert attempts() == ["free/train/1"]
    assert cycle().admitted == 1


# --- At once -------------------------------------------------------------------------------------


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """Do ``work`` in threads, each with a connection of its own; return results or errors."""
    found: list[object] = []

    def one() -> None:
        try:
            found.append(work())
        except Exception as exc:
            found.append(exc)
        finally:
            connection.close()

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.django_db(transaction=True)
def test_cycles_at_once_let_nothing_go_twice_even_without_their_lock(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock ends with its session, and a process may outlive that: it is not all there is."""

    @contextmanager
    def no_lock(*_keys: int) -> Iterator[bool]:
        yield True

    monkeypatch.setattr("admission.cycle.loop.only_one", no_lock)
    for number in range(12):
        queued(f"job-{number}", gpus=2)
    meet = threading.Barrier(3)
    look = live.read_input

    def look_together(now: float) -> live.CycleInput:
        seen = look(now)
        meet.wait()
        return seen

    monkeypatch.setattr("admission.cycle.live.read_input", look_together)
    for _ in range(2):
        done = in_threads(3, lambda: cycle_once(time.time()))
        assert not [each for each in done if isinstance(each, Exception)]
    monkeypatch.setattr("admission.cycle.live.read_input", look)
    placed: Counter[tuple[str, int]] = Counter()
    for attempt in Attempt.objects.all():
        assert attempt.number == 1
        placed.update(
            (node, gpu) for node, gpus in attempt.placement["gpus"].items() for gpu in gpus
        )
    assert len(placed) == 16
    assert max(placed.values()) == 1
    assert Attempt.objects.values("phase").distinct().count() == Attempt.objects.count() == 8


@pytest.mark.django_db(transaction=True)
def test_while_one_is_at_it_another_does_nothing(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued("first")
    inside, go_on = threading.Event(), threading.Event()
    look = live.read_input

    def slowly(now: float) -> live.CycleInput:
        inside.set()
        go_on.wait(60)
        return look(now)

    monkeypatch.setattr("admission.cycle.live.read_input", slowly)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.extend(in_threads(1, lambda: cycle_once(1e9))))
    thread.start()
    assert inside.wait(60)
    assert cycle_once(time.time()) is None
    go_on.set()
    thread.join()
    assert done[0] is not None
