from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet import snapshot
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture
def fleet(db: None) -> Iterator[SmallFleet]:
    """Two sites, bergen and oslo, of two racks each on an A/B pair."""
    made = small_fleet(racks_per_row=2, rows=("A",), nodes_per_rack=1, gpus_per_node=1)
    snapshot.invalidate()
    yield made
    snapshot.invalidate()


@pytest.fixture(autouse=True)
def _waits(settings: Any) -> None:
    settings.INCIDENT_QUIET_S = 120.0
    settings.INCIDENT_REOPEN_MIN = 30.0
    settings.INCIDENT_GROUP_WAIT_S = 10.0
    settings.INCIDENT_GROUP_INTERVAL_S = 300.0
    settings.INCIDENT_REPEAT_H = 4.0
    settings.INHIBITIONS_FILE = str(Path(__file__).with_name("inhibitions.yaml"))
    settings.NOTIFY_ALLOWED_NETWORKS = ["127.0.0.0/8"]
