from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet import snapshot
from policies.headroom import live
from telemetry import stream
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture(autouse=True)
def clean_stores() -> Iterator[None]:
    """An empty Redis, and caches that do not remember the last test's database."""
    stream.connection().flushall()
    snapshot.invalidate()
    live.invalidate()
    yield
    live.invalidate()
    snapshot.invalidate()


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    return small_fleet()
