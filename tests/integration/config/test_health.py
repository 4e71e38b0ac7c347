from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.test import Client
from pytest_django import Settings

from config import condition, health, loops
from config.clock import Moment
from tests import owner


@pytest.fixture
def all_done(settings: Settings) -> Iterator[redis.Redis]:
    """Every loop has been done a moment ago."""
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    for name in settings.CELERY_BEAT_SCHEDULE:
        loops.say_done(name)
    yield client
    client.delete("loops:done", "loops:begun", "clock:step")


@pytest.fixture
def dead_redis(monkeypatch: pytest.MonkeyPatch, unused_port: int) -> None:
    monkeypatch.setattr(
        health,
        "_redis_client",
        lambda: redis.Redis(port=unused_port, socket_connect_timeout=0.2),
    )


@pytest.fixture
def unused_port() -> int:
    from config.embedded.ports import choose_port

    return choose_port()


def _ready(client: Client) -> tuple[int, dict[str, Any]]:
    response = client.get("/readyz")
    assert "no-store" in response["Cache-Control"]
    body: dict[str, Any] = response.json()
    return response.status_code, body


def test_alive_asks_nobody(client: Client) -> None:
    # No database mark: a query would fail.
    response = client.get("/healthz")
    assert (response.status_code, response.content) == (200, b"ok\n")


@pytest.mark.django_db
def test_ready_when_all_is_there(client: Client, all_done: redis.Redis) -> None:
    status, body = _ready(client)
    assert (status, body["status"]) == (200, "ok")
    assert all(check["ok"] for check in body["checks"].values())
    needed = {"postgres", "redis", "migrations"}
    assert set(body["checks"]) == needed | {"worker", "loops", "processes", "disk", "clock"}
    assert body["checks"]["loops"]["policies"]["pace_s"] == 2.0
    assert body["checks"]["disk"]["state"]["free_mib"] > 0
    assert body["checks"]["postgres"]["latency_ms"] > 0
    assert body["checks"]["worker"]["backlog"] == 0


@pytest.mark.django_db
def test_degraded_without_a_worker(client: Client) -> None:
    status, body = _ready(client)
    assert (status, body["status"]) == (200, "degraded")
    assert not body["checks"]["loops"]["ok"]
    assert body["checks"]["loops"]["writer"] == {"ok": False, "pace_s": 2.0, "age_s": None}


def _done(client: redis.Redis, name: str, *, ago_s: float, boot: str = "") -> None:
    now = Moment.now()
    moment = Moment(boot or now.boot, now.elapsed_s - ago_s, now.at - ago_s)
    client.hset("loops:done", name, str(moment))


@pytest.mark.django_db
def test_degraded_with_a_loop_that_is_not_done(client: Client, all_done: redis.Redis) -> None:
    _done(all_done, "policies", ago_s=60)
    status, body = _ready(client)
    assert (status, body["status"]) == (200, "degraded")
    assert not body["checks"]["loops"]["policies"]["ok"]
    assert body["checks"]["loops"]["policies"]["age_s"] >= 60
    assert body["checks"]["loops"]["writer"]["ok"]


@pytest.mark.django_db
def test_an_age_below_zero_is_never_ok(client: Client, all_done: redis.Redis) -> None:
    # On another machine, whose clock is three hours ahead.
    _done(all_done, "policies", ago_s=-10_784, boot="another")
    _, body = _ready(client)
    assert body["status"] == "degraded"
    assert not body["checks"]["loops"]["policies"]["ok"]
    assert body["checks"]["loops"]["policies"]["age_s"] < -10_000


@pytest.mark.django_db
def test_a_step_of_the_clock_changes_no_age(
    client: Client, all_done: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3 * 3600)
    _, body = _ready(client)
    assert body["checks"]["loops"]["ok"]
    assert 0 <= body["checks"]["loops"]["policies"]["age_s"] < 30
    assert not body["checks"]["clock"]["ok"]
    assert body["checks"]["clock"]["database_offset_s"] == pytest.approx(3 * 3600, abs=5)


@pytest.mark.django_db
def test_a_step_of_the_clock_is_told(client: Client, all_done: redis.Redis) -> None:
    now = Moment.now()
    condition.note_clock(all_done, now)
    assert condition.note_clock(all_done, now) == 0.0
    back = Moment(now.boot, now.elapsed_s, now.at - 3 * 3600)
    assert condition.note_clock(all_done, back) == pytest.approx(-3 * 3600)
    # The next look finds the clock as it was left.
    assert condition.note_clock(all_done, back) == 0.0
    _, body = _ready(client)
    assert body["status"] == "degraded"
    assert body["checks"]["clock"]["step_s"] == pytest.approx(-3 * 3600)
    all_done.delete("clock:offset")


@pytest.mark.django_db
def test_a_disk_that_fills_up_is_told(
    client: Client, all_done: redis.Redis, settings: Settings
) -> None:
    settings.DISK_LOW_MB = 10**9
    _, body = _ready(client)
    assert body["status"] == "degraded"
    assert not body["checks"]["disk"]["ok"]


@pytest.mark.django_db
def test_a_process_that_hung_is_told_and_a_supervisor_that_is_gone_too(
    client: Client, all_done: redis.Redis, settings: Settings, tmp_path: Path
) -> None:
    settings.STATE_DIR = tmp_path
    worker = {"running": True, "restarts": 1, "hung": 1, "last": "was stopped"}

    def report(hung_ago_s: float, written_ago_s: float) -> dict[str, Any]:
        now = Moment.now()
        hung_at = Moment(now.boot, now.elapsed_s - hung_ago_s, now.at)
        moment = Moment(now.boot, now.elapsed_s - written_ago_s, now.at)
        services = {"worker": {**worker, "hung_at": str(hung_at)}}
        text = json.dumps({"moment": str(moment), "services": services})
        (tmp_path / "services.json").write_text(text)
        checks: dict[str, Any] = _ready(client)[1]["checks"]
        return cast(dict[str, Any], checks["processes"])

    assert report(5, 1) == {
        "ok": False,
        "worker": {"running": True, "restarts": 1, "hung": 1},
    }
    assert report(3600, 1)["ok"]
    assert not report(3600, 60)["ok"]


@pytest.mark.django_db
def test_not_ready_without_redis(client: Client, dead_redis: None) -> None:
    status, body = _ready(client)
    assert (status, body["status"]) == (503, "unavailable")
    assert body["checks"]["redis"]["error"] == "ConnectionError"
    assert body["checks"]["worker"] == {"ok": False, "error": "needs redis"}
    assert body["checks"]["postgres"]["ok"]


def test_not_ready_without_postgres(
    client: Client, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setitem(connection.settings_dict, "PORT", str(unused_port))
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "hunter2")
    response = client.get("/readyz")
    assert response.status_code == 503
    checks = response.json()["checks"]
    assert checks["postgres"]["error"] == "OperationalError"
    assert checks["migrations"] == {"ok": False, "error": "needs postgres"}
    # Only the kind of the failure: no address, no user, no password.
    assert b"hunter2" not in response.content
    assert str(unused_port).encode() not in response.content


@pytest.mark.django_db(transaction=True)
def test_not_ready_with_a_migration_to_come(client: Client, all_done: redis.Redis) -> None:
    last = MigrationLoader(connection).graph.leaf_nodes("accounts")[0][1]
    name = f"name = '{last}'"
    with owner.session() as session:
        session.execute(f"UPDATE django_migrations SET app = 'elsewhere' WHERE {name}".encode())
        try:
            status, body = _ready(client)
        finally:
            session.execute(f"UPDATE django_migrations SET app = 'accounts' WHERE {name}".encode())
    assert (status, body["status"]) == (503, "unavailable")
    assert body["checks"]["migrations"]["pending"] == [f"accounts.{last}"]


@pytest.mark.django_db
def test_a_postgres_that_hangs_is_given_up_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        monkeypatch.setitem(connection.settings_dict, "PORT", str(silent.getsockname()[1]))
        started = time.monotonic()
        status, _ = _ready(client)
    assert status == 503
    assert time.monotonic() - started < 60


def test_only_safe_methods(client: Client) -> None:
    assert client.post("/healthz").status_code == 405
    assert client.post("/readyz").status_code == 405


def test_probes_are_not_sent_to_tls(client: Client, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200


def test_what_is_asked_by_address_inside_a_cluster_is_not_sent_to_tls(
    client: Client, settings: Settings
) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.METRICS_TOKEN = "scraper"
    bearer = {"Authorization": "Bearer scraper"}
    assert client.get("/metrics", headers=bearer).status_code == 200
    assert client.get("/healthz").status_code == 200
    assert client.get("/login/").status_code == 301
