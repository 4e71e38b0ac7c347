from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.allocation import open_attempts
from admission.cycle import live
from fleet import snapshot
from policies import current
from telemetry import stream
from telemetry.directory import invalidate_scopes
from tests.builders.fleet import SmallFleet, small_fleet
from tests.integration.admission.cycle.scenes import idle


@pytest.fixture(autouse=True)
def clean_stores(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Redis, and a process that does not remember the last test's database."""
    stream.connection().flushall()
    forget_all()
    monkeypatch.setattr("telemetry.tasks.write.delay", lambda shard: None)
    yield
    forget_all()


def forget_all() -> None:
    invalidate_scopes()
    snapshot.invalidate()
    current.invalidate()
    open_attempts.invalidate()
    live.invalidate()


@pytest.fixture
def fleet() -> SmallFleet:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    made = small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))
    idle(made)
    return made
