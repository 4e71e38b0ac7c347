"""Jobs that run on a small fleet, and machines that do as they are told."""

from __future__ import annotations

import pytest

from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing but its own database."""
    # Steps of these tests are minutes apart, and do not take two seconds.
    monkeypatch.setattr("admission.allocation.open_attempts._SERVES_S", 0.0)


@pytest.fixture
def fleet() -> SmallFleet:
    """Two racks of two nodes of four GPUs, with 9.3 kW each: 9 kW when all is at work."""
    return small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",), budget_w=9_300.0)
