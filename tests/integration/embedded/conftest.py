import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that other users can pass through, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="headroom-embedded-"))
    if os.geteuid() == 0:
        folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def state_dir(open_dir: Path) -> Path:
    """Where a launcher may keep its state; not made yet."""
    return open_dir / "state"
