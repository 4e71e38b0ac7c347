"""Every page says what becomes of the jobs of schedulers while Headroom is away."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from django.test import Client

from admission.executors.schedulers import registered, standing
from admission.executors.schedulers.models import Scheduler
from tests.builders.accounts import make_user

pytestmark = pytest.mark.django_db


def _scheduler(*, silent_s: float, when_away: str) -> None:
    seen_at = datetime.fromtimestamp(time.time() - silent_s, UTC)
    Scheduler.objects.create(
        name="hall-a", agent_id=1, kind="slurm", when_away=when_away, seen_at=seen_at
    )
    registered.invalidate()
    standing.publish()


def _page(path: str) -> str:
    client = Client()
    client.force_login(make_user(username="vera"))
    return client.get(path).content.decode()


@pytest.mark.parametrize(("choice", "said"), [("closed", "wait for it"), ("open", "start unheld")])
@pytest.mark.parametrize("path", ["/", "/restrictions/"])
def test_the_choice_of_the_operator_stands_on_pages(path: str, choice: str, said: str) -> None:
    _scheduler(silent_s=1.0, when_away=choice)
    page = _page(path)
    assert f"Slurm hall-a: while Headroom is away, new jobs {said}" in page
    assert "note warning" not in page


def test_a_bridge_that_is_away_is_warned_of(client: Client) -> None:
    _scheduler(silent_s=200.0, when_away="closed")
    page = _page("/")
    assert "Slurm hall-a: its bridge was not heard for 3 min; new jobs wait for it" in page
    assert "note warning" in page


def test_pages_say_nothing_of_schedulers_where_there_are_none() -> None:
    standing.publish()
    assert "new jobs" not in _page("/")
    assert standing.read() == []


def test_whoever_is_not_logged_in_reads_nothing_of_it(client: Client) -> None:
    _scheduler(silent_s=1.0, when_away="open")
    assert "hall-a" not in client.get("/login/").content.decode()
