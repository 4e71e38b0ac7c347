from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from accounts.roles import Role
from dashboard import context, moments, state
from dashboard.views import jobs, queue
from fleet import snapshot
from fleet.cache import Cache
from telemetry import stream
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture(autouse=True)
def clean_stores(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Redis, and caches that do not remember the last test's database."""
    # What all pages share is read once: what one costs does not hang on how long a test takes.
    monkeypatch.setattr(context, "_critical", Cache(60.0))

    def forget() -> None:
        snapshot.invalidate()
        state.invalidate()
        context.invalidate()
        moments.invalidate()
        queue.shared.invalidate()
        jobs.shared.invalidate()

    stream.connection().flushall()
    forget()
    yield
    forget()


@pytest.fixture
def viewer(db: None) -> Client:
    """A browser in which a viewer is logged in."""
    client = Client()
    client.force_login(make_user(Role.VIEWER))
    return client


@pytest.fixture
def small(db: None) -> SmallFleet:
    """Two sites of six racks, two nodes each, four GPUs each; nothing heard yet."""
    return small_fleet()
