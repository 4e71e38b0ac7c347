"""The task that looks after all others: steps of the clock, the own incident, the switch."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.utils import timezone
from pytest_django import Settings

from config import clock_steps, condition, loops, own_incident, room_metrics, tasks, watchdog
from config.clock import Moment
from config.condition import Condition, Service, Step, Trouble
from config.loops import Loop
from policies.incidents.models import Delivery, Incident, NotificationChannel
from telemetry import disk, stream
from telemetry.ingest.errors import Overloaded

NOW = timezone.now()


@pytest.fixture(autouse=True)
def kept() -> Iterator[redis.Redis]:
    client = stream.connection()
    client.flushdb()
    yield client
    client.flushdb()


def all_done() -> None:
    for name in loops.CONTROL:
        loops.say_done(name)


# --- What is wrong -------------------------------------------------------------------------------


def loop(name: str = "policies", *, ok: bool = False, why: str = loops.LATE) -> Loop:
    return Loop(name, 2.0, 90.0, ok, why)


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (Condition(), []),
        (Condition(loops=[loop(ok=True)]), []),
        (Condition(loops=[loop()]), ["loop-policies"]),
        (Condition(backlog=9, lag_s=40.0), ["writer-lag"]),
        (Condition(backlog=9, lag_s=4.0), []),
        (Condition(backlog=9, lag_s=4.0, set_aside=0), []),
        (Condition(backlog=9, lag_s=40.0, set_aside=2), ["writer-lag", "set-aside"]),
        (Condition(services=[Service("web", True, 0, 0, "")], report_age_s=1.0), []),
        (Condition(services=[Service("web", False, 1, 0, "x")], report_age_s=1.0), ["process-web"]),
        (Condition(services=[], report_age_s=90.0), ["supervisor"]),
        (Condition(services=[], report_age_s=-10_000.0), ["supervisor"]),
        (Condition(folders=[disk.Folder("cold", 10**12)]), []),
        (Condition(folders=[disk.Folder("cold", 10**9)]), ["disk-cold"]),
        (Condition(clock_offset_s=4.0), []),
        (Condition(clock_offset_s=-9.0), ["clock-offset"]),
        (Condition(step=Step(-10_800.0, 5.0, 1)), ["clock-step"]),
        (Condition(step=Step(-10_800.0, 5000.0, 1)), []),
    ],
)
def test_what_is_wrong(found: Condition, names: list[str]) -> None:
    assert [each.name for each in condition.troubles(found)] == names


def test_nobody_is_in_control_while_one_loop_is_late() -> None:
    done = [loop(name, ok=True, why="") for name in loops.CONTROL]
    assert condition.in_control(Condition(loops=done))
    assert not condition.in_control(Condition(loops=[*done[1:], loop(done[0].name)]))
    assert not condition.in_control(Condition())


# --- The own incident ----------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_is_wrong_opens_one_incident_and_clears_it() -> None:
    trouble = Trouble("loops", "loop-policies", "policies is late.", critical=True)
    own_incident.follow([trouble], NOW)
    own_incident.follow([trouble], NOW + timedelta(seconds=5))
    (incident,) = Incident.objects.all()
    assert incident.severity == "critical"
    (member,) = incident.members.all()
    assert (member.rule, member.summary) == ("headroom:loops", "policies is late.")
    own_incident.follow([], NOW + timedelta(seconds=10))
    member.refresh_from_db()
    assert member.cleared_at is not None


@pytest.mark.django_db
def test_what_only_starts_is_no_incident() -> None:
    own_incident.follow([Trouble("loops", "loop-x", "not yet", lasting=False)], NOW)
    assert not Incident.objects.exists()


# --- The dead-man's switch -----------------------------------------------------------------------


class Listener:
    """Somebody who listens for the switch."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.status = 200
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.heard.append((self.headers.get("Authorization", ""), json.loads(body)))
                self.send_response(listener.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/api/v2/alerts"


@pytest.fixture
def listener(settings: Settings) -> Iterator[Listener]:
    listener = Listener()
    settings.WATCHDOG_URL, settings.WATCHDOG_TOKEN = listener.url, "secret"
    thread = threading.Thread(target=listener.server.serve_forever)
    thread.start()
    yield listener
    listener.server.shutdown()
    thread.join()
    listener.server.server_close()


@pytest.mark.django_db
def test_the_switch_is_told_each_minute_while_all_is_in_control(
    listener: Listener, kept: redis.Redis
) -> None:
    all_done()
    tasks.watch()
    tasks.watch()
    ((authorization, (alert,)),) = listener.heard
    assert authorization == "Bearer secret"
    assert alert["labels"]["alertname"] == "HeadroomWatchdog"
    now = Moment.now()
    # A minute ago, whatever the clock on the wall said then.
    kept.set("watchdog:pushed", str(Moment(now.boot, now.elapsed_s - 60, now.at + 10_000)))
    tasks.watch()
    assert len(listener.heard) == 2


@pytest.mark.django_db
def test_the_switch_is_silent_when_a_loop_is_not_done(
    listener: Listener, kept: redis.Redis
) -> None:
    all_done()
    now = Moment.now()
    kept.hset("loops:done", "policies", str(Moment(now.boot, now.elapsed_s - 60, now.at)))
    tasks.watch()
    assert listener.heard == []
    assert b"headroom_watchdog 0.0" in room_metrics.generate()


@pytest.mark.django_db
def test_a_switch_that_did_not_hear_is_told_again(listener: Listener) -> None:
    all_done()
    listener.status = 500
    assert not watchdog.push(Moment.now())
    listener.status = 200
    assert watchdog.push(Moment.now())


def test_a_switch_that_is_away_holds_up_nobody(settings: Settings, unused_port: int) -> None:
    settings.WATCHDOG_URL = f"http://127.0.0.1:{unused_port}/"
    assert not watchdog.push(Moment.now())


@pytest.fixture
def unused_port() -> int:
    from config.embedded.ports import choose_port

    return choose_port()


# --- Steps of the clock --------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_was_put_off_is_brought_back_with_the_clock() -> None:
    channel = NotificationChannel.objects.create(
        name="pager", kind="webhook", not_before=NOW + timedelta(hours=3, seconds=20)
    )
    assert clock_steps.follow(-3 * 3600.0, NOW) == 1
    channel.refresh_from_db()
    assert channel.not_before == NOW + timedelta(seconds=20)
    assert clock_steps.follow(3 * 3600.0, NOW) == 0


@pytest.mark.django_db
def test_a_step_is_followed_by_the_next_look(kept: redis.Redis) -> None:
    channel = NotificationChannel.objects.create(
        name="pager", kind="webhook", not_before=timezone.now() + timedelta(hours=2)
    )
    tasks.watch()
    now = Moment.now()
    kept.hset("clock:offset", now.boot, repr(now.offset_s + 3 * 3600))
    tasks.watch()
    channel.refresh_from_db()
    assert channel.not_before is not None
    assert channel.not_before < timezone.now()
    assert Incident.objects.filter(members__rule="headroom:clock").exists()
    assert not Delivery.objects.exists()


def test_every_column_that_puts_something_off_is_there() -> None:
    for model, column in clock_steps.PUT_OFF:
        assert model._meta.get_field(column).get_internal_type() == "DateTimeField"


# --- The disk ------------------------------------------------------------------------------------


def test_readings_are_refused_before_the_disk_is_full(settings: Settings) -> None:
    from telemetry import intake

    settings.DISK_RESERVE_MB = 10**9
    disk.invalidate()
    try:
        with pytest.raises(Overloaded) as refused:
            intake.look(None, None, 0.0)  # type: ignore[arg-type]
        assert refused.value.error.code == "disk_full"
    finally:
        disk.invalidate()


def test_metrics_tell_of_the_machine_room() -> None:
    all_done()
    text = room_metrics.generate().decode()
    assert "headroom_watchdog 1.0" in text
    assert 'headroom_loop_ok{loop="policies"} 1.0' in text
    assert 'headroom_disk_free_bytes{folder="state"}' in text
    assert "headroom_clock_offset_seconds" in text
