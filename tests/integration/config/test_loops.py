"""Beat by the monotonic clock, and what becomes of its messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from django.conf import settings

from config import loops
from config.clock import Moment
from config.loops import LoopTask
from config.schedule import MonotonicScheduler
from telemetry import stream

HOURS_S = 3 * 3600.0


class Clock:
    """The clocks as a test sets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed_s = self.step_s = 0.0
        monotonic, wall = time.monotonic(), time.time()
        monkeypatch.setattr(time, "monotonic", lambda: monotonic + self.passed_s)
        monkeypatch.setattr(time, "time", lambda: wall + self.passed_s + self.step_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def kept() -> Iterator[redis.Redis]:
    """Redis, with nothing of any loop in it."""
    client = stream.connection()
    names = [f"loops:{name}" for name in ("number", "taken", "waiting", "done", "begun")]
    client.delete(*names)
    yield client
    client.delete(*names)


class Sent(MonotonicScheduler):
    """Beat, with a note of what it sends in place of the queue."""

    def __init__(self, schedule: dict[str, Any]) -> None:
        self.sent: list[tuple[str, str]] = []
        app = Celery(set_as_current=False)
        app.conf.beat_schedule = schedule
        super().__init__(app)

    @property
    def producer(self) -> Any:
        return None

    def apply_async(self, entry: Any, *_: Any, **__: Any) -> None:
        self.sent.append((entry.name, entry.options["headers"]["turn"]))


def every(**paces: float) -> dict[str, Any]:
    return {name: {"task": f"tasks.{name}", "schedule": pace} for name, pace in paces.items()}


def go_round(beat: Sent, clock: Clock, seconds: float, *, taken_up: bool = True) -> int:
    """Let time pass in small steps; return how many messages were sent meanwhile."""
    before = len(beat.sent)
    for _ in range(int(seconds * 4)):
        clock.passed_s += 0.25
        known = len(beat.sent)
        beat.tick()
        for _, turn in beat.sent[known:] if taken_up else ():
            name, _, number = turn.partition(" ")
            loops._take_up(name, int(number))
    return len(beat.sent) - before


@pytest.mark.parametrize("step_s", [-HOURS_S, HOURS_S])
def test_a_step_of_the_clock_changes_nothing_for_beat(
    kept: redis.Redis, clock: Clock, step_s: float
) -> None:
    beat = Sent(every(policies=2.0))
    assert go_round(beat, clock, 10) == 1 + 5  # the first with the start
    clock.step_s = step_s
    assert go_round(beat, clock, 10) == 5


def test_what_was_missed_is_not_made_up_for_in_a_burst(kept: redis.Redis, clock: Clock) -> None:
    beat = Sent(every(policies=2.0))
    go_round(beat, clock, 4)
    clock.passed_s += HOURS_S
    assert go_round(beat, clock, 4) <= 3


def test_what_comes_often_is_due_with_the_start(kept: redis.Redis, clock: Clock) -> None:
    beat = Sent(every(policies=2.0, restrictions=5.0, rollups=15.0))
    beat.tick()
    assert sorted(name for name, _ in beat.sent) == ["policies", "restrictions"]
    go_round(beat, clock, 14.5)
    assert "rollups" not in dict(beat.sent)


def test_what_comes_seldom_is_done_within_a_minute_of_a_start(
    kept: redis.Redis, clock: Clock
) -> None:
    beat = Sent(every(forget=3600.0))
    assert go_round(beat, clock, 59) == 0
    assert go_round(beat, clock, 2) == 1
    assert go_round(beat, clock, 3500) == 0


def test_nothing_is_sent_while_the_last_message_waits_but_a_lost_one_is_made_good(
    kept: redis.Redis, clock: Clock
) -> None:
    beat = Sent(every(policies=2.0, cold=20.0))
    # In 60 s it would be 30 and 3.
    go_round(beat, clock, 60, taken_up=False)
    names = [name for name, _ in beat.sent]
    assert 8 <= names.count("policies") <= 15
    assert names.count("cold") == 3 or names.count("cold") == 2


def test_a_broker_that_is_away_does_not_end_beat(
    kept: redis.Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = Sent(every(policies=2.0))

    def fail(*_: object, **__: object) -> None:
        raise redis.ConnectionError

    with monkeypatch.context() as away:
        away.setattr(loops, "announce", fail)
        assert go_round(beat, clock, 10) == 0
    assert go_round(beat, clock, 10) == 5


# --- The receiver --------------------------------------------------------------------------------


class Counted(LoopTask):
    name = "tests.counted"

    def __init__(self, answer: bool | None = None) -> None:
        self.runs = 0
        self.answer = answer

    def run(self) -> bool | None:
        self.runs += 1
        return self.answer


def receive(task: Counted, headers: dict[str, str] | None) -> None:
    """Have a worker run a message with these headers."""
    task.bind(Celery(set_as_current=False))
    task.push_request(called_directly=False, **(headers or {}))
    try:
        task()
    finally:
        task.pop_request()


def send(name: str, *, again: bool = True) -> dict[str, str]:
    headers = loops.announce(name, again=again)
    assert headers is not None
    return headers


def test_of_messages_that_wait_the_first_is_done_and_the_others_are_passed_over(
    kept: redis.Redis,
) -> None:
    task = Counted()
    waiting = [send("policies") for _ in range(5)]
    for headers in waiting:
        receive(task, headers)
    assert task.runs == 1
    receive(task, send("policies", again=False))
    assert task.runs == 2


def test_a_queue_that_is_always_late_starves_no_loop(kept: redis.Redis) -> None:
    task = Counted()
    queue = [send("policies") for _ in range(3)]
    for _ in range(30):
        queue.append(send("policies"))
        receive(task, queue.pop(0))
    assert task.runs >= 8


def test_messages_after_a_loss_of_redis_are_done(kept: redis.Redis) -> None:
    task = Counted()
    for _ in range(3):
        receive(task, send("policies"))
    kept.delete("loops:number", "loops:taken", "loops:waiting")
    receive(task, send("policies", again=False))
    assert task.runs == 4


def test_a_loop_that_another_process_is_at_is_not_done(kept: redis.Redis) -> None:
    receive(Counted(answer=False), send("policies"))
    assert kept.hget("loops:done", "policies") is None
    receive(Counted(answer=True), send("policies"))
    assert kept.hget("loops:done", "policies") is not None


def test_a_message_that_beat_did_not_send_is_always_done(kept: redis.Redis) -> None:
    task = Counted()
    receive(task, None)
    receive(task, None)
    assert task.runs == 2


# --- How loops stand -----------------------------------------------------------------------------

NOW = Moment("here", 1000.0, 5000.0)


def ago(seconds: float, *, boot: str = "here", step_s: float = 0.0) -> Moment:
    return Moment(boot, NOW.elapsed_s - seconds, NOW.at - seconds + step_s)


@pytest.mark.parametrize(
    ("pace_s", "done", "begun", "ok", "why"),
    [
        (2.0, ago(1), ago(500), True, ""),
        (2.0, ago(31), ago(500), False, loops.LATE),
        # Clocks that were set since: only what passed counts.
        (2.0, ago(1, step_s=HOURS_S), ago(500), True, ""),
        (2.0, ago(31, step_s=-HOURS_S), ago(500), False, loops.LATE),
        # On another machine there is only the clock on the wall.
        (2.0, ago(1, boot="there"), ago(500), True, ""),
        (2.0, ago(-10_784, boot="there"), ago(500), False, loops.AHEAD),
        # After a start.
        (2.0, None, ago(5), False, loops.STARTING),
        (2.0, None, ago(31), False, loops.LATE),
        (2.0, ago(40_000), ago(5), False, loops.STARTING),
        (3600.0, None, ago(5), True, ""),
        (3600.0, None, None, True, ""),
        (2.0, None, None, False, loops.STARTING),
        (3600.0, ago(11_000), ago(20_000), False, loops.LATE),
    ],
)
def test_how_a_loop_stands(
    pace_s: float, done: Moment | None, begun: Moment | None, ok: bool, why: str
) -> None:
    found = loops.judge("one", pace_s, done, begun, NOW)
    assert (found.ok, found.why) == (ok, why)


def test_no_task_of_the_schedule_expires_by_a_clock() -> None:
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        assert entry.keys() == {"task", "schedule"}
