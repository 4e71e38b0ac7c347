from __future__ import annotations

import pytest

from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture(autouse=True)
def clean_stores(clean_stores: None) -> None:
    """Each test begins with nothing but its own database."""


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    return small_fleet()
