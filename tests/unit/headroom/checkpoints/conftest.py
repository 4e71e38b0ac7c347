from __future__ import annotations

from pathlib import Path

import pytest

from headroom.checkpoints import Store
from tests.unit.headroom.checkpoints.builders import make_store


@pytest.fixture
def near(tmp_path: Path) -> Store:
    return make_store(tmp_path / "near")


@pytest.fixture
def far(tmp_path: Path) -> Store:
    return make_store(tmp_path / "far")
