from __future__ import annotations

import pytest
from django.test import Client

from accounts.roles import Role
from dashboard import context
from fleet.cache import Cache
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing but its own database."""
    # What all pages share is read once: what one costs does not hang on how long a test takes.
    monkeypatch.setattr(context, "_critical", Cache(60.0))


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
