"""Jobs that run on a small fleet, and machines that do as they are told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.allocation import open_attempts
from admission.directives import placed
from fleet import snapshot
from policies import current
from telemetry import stream
from telemetry.directory import invalidate_scopes
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture(autouse=True)
def clean_stores(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Redis, and a process that does not remember the last test's database."""
    stream.connection().flushall()
    _forget()
    # Steps of these tests are minutes apart, and do not take two seconds.
    monkeypatch.setattr("admission.allocation.open_attempts._SERVES_S", 0.0)
    monkeypatch.setattr("telemetry.tasks.write.delay", lambda shard: None)
    yield
    _forget()


def _forget() -> None:
    invalidate_scopes()
    snapshot.invalidate()
    current.invalidate()
    open_attempts.invalidate()
    placed.invalidate()


@pytest.fixture
def fleet() -> SmallFleet:
    """Two racks of two nodes of four GPUs, with 9.3 kW each: 9 kW when all is at work."""
    return small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",), budget_w=9_300.0)
