from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet import snapshot
from policies.headroom import live
from telemetry import stream
from telemetry.directory import invalidate_scopes


@pytest.fixture(autouse=True)
def clean_stores(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Redis, and a process that does not remember the last test's database."""
    stream.connection().flushall()
    invalidate_scopes()
    snapshot.invalidate()
    live.invalidate()
    monkeypatch.setattr("telemetry.tasks.write.delay", lambda shard: None)
    yield
    snapshot.invalidate()
    live.invalidate()
