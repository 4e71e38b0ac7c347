from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None) -> None:
    """Each test begins with nothing but its own database."""
