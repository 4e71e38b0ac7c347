from __future__ import annotations

import pytest
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from accounts.roles import Role
from config import errors
from tests.builders.accounts import client_of

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.integration.config.urls_of_errors"),
]

STATUSES = [400, 403, 404, 500]


@pytest.fixture
def visitor() -> Client:
    client = client_of(Role.VIEWER)
    client.raise_request_exception = False
    return client


@pytest.mark.parametrize("status", STATUSES)
def test_people_get_a_page_of_ours(visitor: Client, status: int) -> None:
    response = visitor.get(f"/fail/{status}")
    page = response.content.decode()
    assert response.status_code == status
    assert "<h1>" in page
    assert "Headroom" in page
    assert "unsafe" not in response["Content-Security-Policy"]
    assert "Traceback" not in page
    assert "hru_" not in page


@pytest.mark.parametrize("status", STATUSES)
def test_programs_get_json(visitor: Client, status: int) -> None:
    response = visitor.get(f"/api/v1/fail/{status}")
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"code", "message", "field", "hint"}


def test_who_may_not_is_told_why(visitor: Client) -> None:
    assert b"may not edit fleet" in visitor.get("/fail/403").content


def test_a_page_names_the_request_for_the_logs(visitor: Client) -> None:
    page = visitor.get("/fail/404").content.decode()
    request_id = page.split("request <code>")[1].split("</code>")[0]
    assert len(request_id) == 16


def test_an_unknown_address_is_not_found(visitor: Client) -> None:
    assert visitor.get("/nothing/here").status_code == 404
    response = visitor.get("/api/v1/nothing")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


def test_the_500_page_asks_the_database_nothing(
    visitor: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        response = errors.server_error(RequestFactory().get("/"))
    assert response.status_code == 500
    assert b"Something broke" in response.content


def test_a_page_that_cannot_be_made_is_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> str:
        raise RuntimeError("no templates")

    monkeypatch.setattr(errors, "render_to_string", broken)
    response = errors.server_error(RequestFactory().get("/"))
    assert response.status_code == 500
    assert b"fault in Headroom" in response.content
