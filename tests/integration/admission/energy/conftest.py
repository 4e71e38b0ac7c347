from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.builders.ledger import Ledger, begin_ledger


@pytest.fixture
def ledger(db: None) -> Ledger:
    """One site with two racks of two nodes with two GPUs, before an hour that is to be closed."""
    now = datetime.now(UTC)
    return begin_ledger(now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2))
