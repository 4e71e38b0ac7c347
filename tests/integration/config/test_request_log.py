from __future__ import annotations

import pytest
import structlog
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from structlog.testing import LogCapture
from structlog.typing import Processor

from accounts.roles import Role
from config import requests
from tests.builders.accounts import bearer, client_of, make_token, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    capture = LogCapture()
    processors: list[Processor] = [structlog.contextvars.merge_contextvars, capture]
    monkeypatch.setattr(requests, "log", structlog.wrap_logger(None, processors=processors))
    return capture


def test_a_request_leaves_one_line(lines: LogCapture) -> None:
    client_of().get("/account/?x=1")
    (line,) = lines.entries
    assert line["event"] == "request"
    assert (line["method"], line["path"], line["status"]) == ("GET", "/account/?x=1", 200)
    assert line["duration_ms"] > 0
    assert line["ip"] == "127.0.0.1"
    assert len(line["request_id"]) == 16


def test_it_names_the_user_of_a_session_and_of_a_token(lines: LogCapture, client: Client) -> None:
    user = make_user(Role.VIEWER)
    client.force_login(user)
    client.get("/account/")
    Client().get("/api/v1/me", headers=bearer(make_token(user)))
    assert [line["user_id"] for line in lines.entries] == [user.pk, user.pk]


def test_it_looks_up_no_user_that_the_view_did_not(
    lines: LogCapture, client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client.force_login(make_user())
    with django_assert_num_queries(0):
        client.options("/healthz")
    assert lines.entries[0]["user_id"] is None


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/live/pulse"])
def test_what_is_routine_leaves_none(lines: LogCapture, path: str) -> None:
    client_of().get(path)
    assert lines.entries == []


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/telemetry"])
def test_what_is_routine_and_fails_does(lines: LogCapture, client: Client, path: str) -> None:
    client.post(path)
    assert [line["log_level"] for line in lines.entries] == ["warning"]


def test_ids_differ_and_do_not_outlive_their_request(lines: LogCapture, client: Client) -> None:
    client.get("/login/")
    client.get("/login/")
    first, second = (line["request_id"] for line in lines.entries)
    assert first != second
    assert structlog.contextvars.get_contextvars() == {}
