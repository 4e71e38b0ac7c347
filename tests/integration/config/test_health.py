from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.test import Client
from pytest_django import Settings

from config import health
from telemetry import stream
from tests import owner


@pytest.fixture
def heartbeat() -> Iterator[None]:
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    client.set(stream.HEARTBEAT_KEY, time.time())
    yield
    client.delete(stream.HEARTBEAT_KEY)


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
def test_ready_when_all_is_there(client: Client, heartbeat: None) -> None:
    status, body = _ready(client)
    assert (status, body["status"]) == (200, "ok")
    assert set(body["checks"]) == {"postgres", "redis", "migrations", "worker"}
    assert all(check["ok"] for check in body["checks"].values())
    assert body["checks"]["postgres"]["latency_ms"] > 0
    assert body["checks"]["worker"]["backlog"] == 0


@pytest.mark.django_db
def test_degraded_without_a_worker(client: Client) -> None:
    status, body = _ready(client)
    assert (status, body["status"]) == (200, "degraded")
    assert body["checks"]["worker"]["error"] == "never heard"


@pytest.mark.django_db
def test_degraded_with_a_worker_that_fell_silent(client: Client, heartbeat: None) -> None:
    redis.Redis.from_url(django_settings.REDIS_URL).set(stream.HEARTBEAT_KEY, time.time() - 60)
    status, body = _ready(client)
    assert (status, body["status"]) == (200, "degraded")
    assert body["checks"]["worker"]["age_s"] >= 60


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
def test_not_ready_with_a_migration_to_come(client: Client, heartbeat: None) -> None:
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
    assert time.monotonic() - started < 5


def test_only_safe_methods(client: Client) -> None:
    assert client.post("/healthz").status_code == 405
    assert client.post("/readyz").status_code == 405


def test_probes_are_not_sent_to_tls(client: Client, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200
