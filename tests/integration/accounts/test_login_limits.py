"""Guessing, by whatever mix of names and addresses; and names that cannot be anybody's."""

from __future__ import annotations

from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.db.models import F
from django.test import Client
from pytest_django import Settings

from accounts.models import AuditEntry
from tests.builders.accounts import PASSWORD, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _limits(settings: Settings) -> None:
    settings.AXES_FAILURE_LIMIT = 3
    settings.LOGIN_ADDRESS_LIMIT = 6
    settings.LOGIN_NAME_LIMIT = 5
    make_user(username="ada")


def _try(client: Client, username: str, password: str = "wrong", address: str = "10.0.0.1") -> int:
    form = {"username": username, "password": password}
    return client.post("/login/", form, REMOTE_ADDR=address).status_code


def test_a_spray_over_many_names_from_one_address_is_stopped() -> None:
    answers = [_try(Client(), f"name-{number}") for number in range(8)]
    assert answers == [200] * 5 + [429] * 3
    assert _try(Client(), "ada", PASSWORD) == 429
    assert _try(Client(), "ada", PASSWORD, address="10.0.0.2") == 302


def test_an_ipv6_network_counts_as_one_address() -> None:
    answers = [_try(Client(), f"n{n}", address=f"2001:db8:0:1:{n}::{n}") for n in range(1, 8)]
    assert answers == [200] * 5 + [429] * 2
    assert _try(Client(), "ada", PASSWORD, address="2001:db8:0:2::1") == 302


def test_many_addresses_on_one_name_are_stopped() -> None:
    answers = [_try(Client(), "ada", address=f"10.0.1.{number}") for number in range(7)]
    assert answers == [200] * 4 + [429] * 3


def test_the_owner_gets_in_by_a_known_browser_while_the_name_is_attacked() -> None:
    known = Client()
    assert _try(known, "ada", PASSWORD, address="10.9.9.9") == 302
    known.post("/logout/")
    for number in range(7):
        _try(Client(), "ada", address=f"10.0.1.{number}")
    assert _try(Client(), "ada", PASSWORD, address="10.9.9.9") == 429
    assert _try(known, "ada", PASSWORD, address="10.9.9.9") == 302


def test_the_owner_gets_in_by_a_known_browser_beside_the_attacker() -> None:
    known = Client()
    _try(known, "ada", PASSWORD)
    known.post("/logout/")
    for _ in range(4):
        _try(Client(), "ada")
    assert _try(known, "ada", PASSWORD) == 302


def test_a_known_browser_does_not_guess_without_limit() -> None:
    known = Client()
    _try(known, "ada", PASSWORD)
    known.post("/logout/")
    answers = [_try(known, "ada", address=f"10.0.3.{number}") for number in range(4)]
    assert answers == [200, 200, 429, 429]


def test_a_browser_that_is_known_for_one_name_is_a_stranger_to_others() -> None:
    make_user(username="mallory")
    known = Client()
    _try(known, "mallory", PASSWORD)
    known.post("/logout/")
    assert [_try(known, "ada") for _ in range(3)] == [200, 200, 429]


def test_a_made_up_cookie_makes_nobody_known() -> None:
    client = Client()
    client.cookies["known_browser"] = "WyJhZGEiLCJ4Il0:1abc:forged"
    assert [_try(client, "ada") for _ in range(3)] == [200, 200, 429]


def test_a_lock_of_a_name_ends() -> None:
    for number in range(7):
        _try(Client(), "ada", address=f"10.0.1.{number}")
    AccessAttempt.objects.update(attempt_time=F("attempt_time") - timedelta(minutes=16))
    assert _try(Client(), "ada", PASSWORD) == 302


@pytest.mark.parametrize("name", ["x" * 151, "x" * 256, "x" * 5000])
def test_a_name_that_nobody_can_have_is_a_wrong_one(client: Client, name: str) -> None:
    response = client.post("/login/", {"username": name, "password": "wrong"})
    assert response.status_code == 200
    assert b"do not match" in response.content
    assert not AuditEntry.objects.exists()


def test_odd_bytes_beside_a_wrong_password_are_no_error(client: Client) -> None:
    form = {"username": "ada", "password": "wrong", "next": "/\x7f"}
    headers = {"User-Agent": "x" * 3000, "Accept": "y" * 3000}
    assert client.post("/login/?next=%7F" + "z" * 3000, form, headers=headers).status_code == 200
