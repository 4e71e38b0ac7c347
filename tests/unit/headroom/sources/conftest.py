from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.data_sets import data_set


@pytest.fixture
def infiniband(tmp_path: Path) -> Path:
    """The ``/sys/class/infiniband`` of a node with eight GPUs, linked into place as in sysfs."""
    with tarfile.open(data_set("infiniband-counters") / "sys-class-infiniband-h100.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    (devices,) = tmp_path.iterdir()
    root = tmp_path / "class" / "infiniband"
    root.mkdir(parents=True)
    for device in devices.iterdir():
        (root / device.name).symlink_to(device)
    return root
