"""No answer of a view may be kept by a browser or a proxy. Polls are answered with 304 anyway."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.roles import Role
from tests.builders.accounts import api_client, client_of
from tests.integration.config.test_every_url import API

pytestmark = pytest.mark.django_db


def test_nothing_that_the_api_answers_a_token_is_kept() -> None:
    """Sessions and strangers: test_every_url.py, which asks all there is in their names."""
    client = api_client(Role.ADMIN)
    answers = {each: client.get(each).get("Cache-Control", "") for each in API}
    assert [each for each, kept in answers.items() if "no-store" not in kept] == []


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
