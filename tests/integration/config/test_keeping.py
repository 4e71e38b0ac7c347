"""No answer of a view may be kept by a browser or a proxy. Polls are answered with 304 anyway."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.roles import Role
from tests.builders.accounts import api_client, client_of
from tests.integration.config.test_every_url import ADDRESSES

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("who", ["session", "token", "stranger"])
def test_nothing_that_a_view_answers_is_kept(who: str) -> None:
    clients = {"session": client_of, "token": api_client, "stranger": lambda _: Client()}
    client = clients[who](Role.ADMIN)
    kept = {
        address: answer.get("Cache-Control")
        for address in ADDRESSES
        if "no-store" not in (answer := client.get(address)).get("Cache-Control", "")
    }
    assert kept == {}


def test_a_poll_is_answered_with_304_without_a_cache() -> None:
    client = client_of()
    first = client.get("/live/fleet")
    assert first.status_code == 200
    again = client.get("/live/fleet", headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 304
    assert first["Cache-Control"] == again["Cache-Control"] == "private, no-store"


def test_files_may_be_kept(client: Client) -> None:
    answer = client.get("/static/css/headroom.css")
    answer.close()
    assert answer.status_code == 200
    assert "no-store" not in answer["Cache-Control"]
