from __future__ import annotations

import pytest

from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import idle_fleet


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None) -> None:
    """Each test begins with nothing but its own database."""


@pytest.fixture
def fleet() -> SmallFleet:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    return idle_fleet()
