"""What is dear: so much at once, so much in a second, and none for longer than it may take."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from pytest_django import Settings

from accounts import cost
from accounts.cost import Buckets, Slots, TooDear, dear, dear_unless_quick
from accounts.models import User
from accounts.roles import Role
from config.api import CursorPagination
from fleet.models import Gpu
from telemetry import series
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.fleet import small_fleet

SERIES = "/api/v1/series"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_slots", Slots())
    monkeypatch.setattr(cost, "_reads", Buckets())
    monkeypatch.setattr(cost, "_writes", Buckets())


@pytest.fixture
def ada(db: None) -> User:
    return make_user(Role.OPERATOR, username="ada")


def request_of(user: User, path: str = "/api/v1/anything") -> HttpRequest:
    request = RequestFactory().get(path)
    request.user = user
    return request


# --- At once --------------------------------------------------------------------------------------


def nothing(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Held:
    """Dear requests that go on until they are let go, each in a thread of its own."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._threads: list[threading.Thread] = []
        self._entered = threading.Semaphore(0)
        self.view = dear("the span")(self._work)

    def _work(self, request: HttpRequest) -> HttpResponse:
        self._entered.release()
        self._go.wait(20)
        return HttpResponse()

    def begin(self, user: User) -> None:
        def run() -> None:
            self.view(request_of(user))
            connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)
        assert self._entered.acquire(timeout=20)

    def end(self) -> None:
        self._go.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.end()


def users(*names: str) -> list[User]:
    return [User(pk=number, username=name) for number, name in enumerate(names, 1)]


@pytest.mark.django_db
def test_one_user_cannot_take_all_threads(settings: Settings, held: Held) -> None:
    settings.DEAR_REQUESTS_PER_USER, settings.DEAR_REQUESTS_AT_ONCE = 2, 3
    ada, bob, eva = users("ada", "bob", "eva")
    held.begin(ada)
    held.begin(ada)
    refused = held.view(request_of(ada))
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert b"you have 2 requests" in refused.content
    held.begin(bob)
    assert b"all users together have 3" in held.view(request_of(eva)).content
    held.end()
    assert held.view(request_of(eva)).status_code == 200


def test_what_fails_leaves_its_slot() -> None:
    slots = Slots()
    for _ in range(10):
        with pytest.raises(ZeroDivisionError), slots.hold(1):
            raise ZeroDivisionError
    with slots.hold(1), slots.hold(1), pytest.raises(TooDear), slots.hold(1):
        pass


def test_the_api_is_answered_in_its_own_words_and_a_page_in_text(
    ada: User, settings: Settings
) -> None:
    settings.DEAR_REQUESTS_PER_S = 0.05
    view = dear("the span")(nothing)
    view(request_of(ada))
    answer = view(request_of(ada))
    assert (answer.status_code, answer.headers["Content-Type"]) == (429, "application/json")
    assert b'"too_many_requests"' in answer.content
    page = view(request_of(ada, "/search"))
    assert page.headers["Content-Type"].startswith("text/plain")
    assert int(page.headers["Retry-After"]) >= 1


# --- For how long ---------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_takes_too_long_is_ended_and_the_next_has_its_own_time(
    settings: Settings,
) -> None:
    settings.QUERY_TIMEOUT_S = 0.05
    user = make_user(Role.VIEWER)

    @dear("from and to")
    def view(request: HttpRequest) -> HttpResponse:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")
        return HttpResponse()

    answer = view(request_of(user))
    assert answer.status_code == 503
    assert b'"query_too_dear"' in answer.content
    assert b"narrow from and to" in answer.content
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.2), current_setting('statement_timeout')")
        assert cursor.fetchone()[1] == "0"


def test_a_series_that_takes_too_long_is_told_what_to_narrow(
    ada: User, settings: Settings, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    settings.QUERY_TIMEOUT_S = 0.05
    small_fleet()
    gpu = Gpu.objects.all()[0]

    def slow(*given: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")

    monkeypatch.setattr(series, "query", slow)
    client = Client(headers=bearer(make_token(ada)))
    answer = client.get(SERIES, {"kind": "gpu", "id": str(gpu.pk), "range": "1h"})
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert error["code"] == "query_too_dear"
    assert "from and to" in error["hint"]


# --- Lists, which are quick until they are not ----------------------------------------------------


class Sleeps:
    """A list whose statement takes so long, and how often it was begun."""

    def __init__(self, seconds: float) -> None:
        self.begun = 0
        self._seconds = seconds
        self.view = dear_unless_quick("the site")(self._work)

    def _work(self, request: HttpRequest) -> HttpResponse:
        self.begun += 1
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [self._seconds])
        return HttpResponse()


@pytest.mark.django_db(transaction=True)
def test_a_quick_list_takes_no_slot_and_a_slow_one_needs_one(
    settings: Settings, held: Held
) -> None:
    settings.DEAR_REQUESTS_PER_USER, settings.QUICK_QUERY_S = 1, 0.1
    (ada,) = users("ada")
    quick, slow = Sleeps(0.0), Sleeps(0.3)
    assert slow.view(request_of(ada)).status_code == 200
    assert slow.begun == 2
    held.begin(ada)
    assert [quick.view(request_of(ada)).status_code for _ in range(5)] == [200] * 5
    refused = slow.view(request_of(ada))
    assert refused.status_code == 503
    assert b"too_many_at_once" in refused.content
    assert slow.begun == 3


@pytest.mark.django_db(transaction=True)
def test_a_list_that_takes_too_long_in_its_slot_is_ended_too(settings: Settings) -> None:
    settings.QUICK_QUERY_S, settings.QUERY_TIMEOUT_S = 0.05, 0.1
    (ada,) = users("ada")
    answer = Sleeps(20.0).view(request_of(ada))
    assert answer.status_code == 503
    assert b"narrow the site" in answer.content
    assert Sleeps(0.0).view(request_of(ada)).status_code == 200


@pytest.mark.parametrize("name", ["throttle-events", "xid-events", "ecc-events"])
def test_lists_of_events_end_when_they_take_too_long(
    ada: User,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    transactional_db: None,
    name: str,
) -> None:
    settings.QUICK_QUERY_S, settings.QUERY_TIMEOUT_S = 0.05, 0.1

    def slow(*_: Any, **__: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")

    monkeypatch.setattr(CursorPagination, "paginate_queryset", slow)
    answer = Client(headers=bearer(make_token(ada))).get(f"/api/v1/{name}")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "query_too_dear"
    assert "since and until" in answer.json()["error"]["hint"]


# --- How often ------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [SERIES, f"{SERIES}.csv", "/search", "/api/v1/xid-events"])
def test_dear_things_are_asked_for_only_so_often(ada: User, settings: Settings, url: str) -> None:
    settings.DEAR_REQUESTS_PER_S = 0.1
    client = Client(headers=bearer(make_token(ada)))
    client.force_login(ada)
    answers = [client.get(url) for _ in range(3)]
    assert [answer.status_code == 429 for answer in answers] == [False, False, True]
    assert int(answers[-1].headers["Retry-After"]) >= 1


def test_the_first_request_is_had_whatever_the_time() -> None:
    for now in (0.1 * number for number in range(10_000)):
        assert Buckets().take(1, now, per_s=0.05, at_once=1) == 0.0


def test_one_users_share_is_not_anothers(ada: User, settings: Settings) -> None:
    settings.DEAR_REQUESTS_PER_S = 0.05
    bob = make_user(Role.VIEWER, username="bob")
    codes = []
    for user in (ada, ada, bob):
        client = Client()
        client.force_login(user)
        codes.append(client.get("/search").status_code)
    assert codes == [200, 429, 200]


def test_changes_through_the_api_come_only_so_often(ada: User, settings: Settings) -> None:
    settings.WRITES_PER_S = 0.1
    client = Client(headers=bearer(make_token(ada)))
    answers = [
        client.post("/api/v1/agents", {"name": f"a{i}"}, content_type="application/json")
        for i in range(3)
    ]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert "Retry-After" in answers[-1].headers
    assert client.get("/api/v1/agents").status_code == 200


def test_forms_of_pages_come_only_so_often(ada: User, client: Client, settings: Settings) -> None:
    settings.WRITES_PER_S = 0.1
    client.force_login(ada)
    codes = [client.post("/jobs/nothing/hold").status_code for _ in range(3)]
    assert codes == [404, 404, 429]


def test_a_bucket_refills_at_its_rate() -> None:
    buckets = Buckets()
    taken = [buckets.take(1, now, per_s=2.0, at_once=2) for now in (0.0, 0.0, 0.0, 0.5, 0.5)]
    assert taken == [0.0, 0.0, 0.5, 0.0, 0.5]
