from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.sources.storage import Mount, StorageSource, probe_mount
from headroom.contracts import StorageColumns
from tests.unit.headroom.waiting import wait_for


class Hanging:
    """A mount whose server is gone: what is done there comes back when the gate opens."""

    def __init__(self, at: str) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self._at = at

    def probe(self, mount: Mount, begin: Callable[[str], None]) -> None:
        for step in ("fsync_s", "leave the page cache", "read_s", "remove"):
            begin(step)
            if step == self._at:
                self.begun.set()
                self.gate.wait(20)


def local(path: Path, name: str = "scratch") -> Mount:
    return Mount(path=path, name=name, is_mounted=False)


def probed(mount: Mount) -> list[str]:
    steps: list[str] = []
    probe_mount(mount, steps.append)
    return steps


def test_a_probe_writes_then_reads_and_leaves_nothing(tmp_path: Path) -> None:
    steps = probed(local(tmp_path))
    assert [step for step in steps if step.endswith("_s")] == ["fsync_s", "read_s"]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_agent_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / f".headroom-probe-{socket.gethostname()}").write_text("left over")
    assert probed(local(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_probe_does_not_follow_a_link_that_somebody_laid(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / f".headroom-probe-{socket.gethostname()}").symlink_to(target)
    probed(local(mount))
    assert target.read_text() == "data"


def test_a_mount_that_is_gone_is_not_mistaken_for_the_root(tmp_path: Path) -> None:
    if tmp_path.stat().st_dev != Path("/").stat().st_dev:
        pytest.skip("temporary files are on another file system than the root here")
    with pytest.raises(OSError, match="not mounted"):
        probe_mount(Mount(path=tmp_path, name="x"), lambda step: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a second file system")
def test_a_mount_that_is_there_is_probed() -> None:
    folder = Path("/dev/shm") / f"headroom-test-{os.getpid()}"
    folder.mkdir()
    try:
        assert probed(Mount(path=folder, name="shm"))
    finally:
        folder.rmdir()


def gathered(source: StorageSource, count: int) -> list[Row]:
    rows: list[Row] = []

    def more() -> bool:
        rows.extend(source.read())
        return len(rows) >= count

    wait_for(more)
    return rows


@pytest.fixture
def start() -> Iterator[Callable[..., StorageSource]]:
    started: list[StorageSource] = []

    def run(*mounts: Mount, **settings: object) -> StorageSource:
        known = {"interval_s": 0.05, "deadline_s": 0.1, **settings}
        made = StorageSource(mounts, **known)  # type: ignore[arg-type]
        started.append(made)
        return made

    yield run
    for source in started:
        source.close()


def test_each_mount_has_rows_that_fit_the_contract(
    tmp_path: Path, start: Callable[..., StorageSource]
) -> None:
    (tmp_path / "b").mkdir()
    source = start(local(tmp_path, "a"), local(tmp_path / "b", "b"), clock=lambda: 7.0)
    buffer = ColumnBuffer(StorageColumns)
    for row in gathered(source, 4):
        buffer.append(7.0, row)
    block = buffer.take()
    assert block is not None
    assert set(block.mount) == {"a", "b"}
    assert block.fsync_s is not None
    assert block.read_s is not None
    assert all(value is not None and 0 < value < 10 for value in block.fsync_s + block.read_s)
    assert (buffer.rejected, source.errors) == (0, 0)


def test_a_mount_that_cannot_be_written_is_an_error_without_a_reading(
    tmp_path: Path, start: Callable[..., StorageSource]
) -> None:
    source = start(local(tmp_path / "missing"))
    wait_for(lambda: source.errors >= 2)
    assert list(source.read()) == []
    assert "missing" in source.last_error


@pytest.mark.parametrize(
    ("at", "reported"), [("fsync_s", "fsync_s"), ("read_s", "read_s"), ("remove", "fsync_s")]
)
def test_a_probe_that_hangs_is_reported_with_the_time_it_takes_so_far(
    tmp_path: Path, start: Callable[..., StorageSource], at: str, reported: str
) -> None:
    hanging = Hanging(at)
    source = start(local(tmp_path), probe=hanging.probe)
    rows = gathered(source, 2)
    if at != "remove":
        first, second = (row[reported] for row in rows[:2])
        assert isinstance(first, float)
        assert isinstance(second, float)
        assert 0.1 <= first < second
    else:
        assert rows[0]["read_s"] is not None  # what was measured before it hung
    assert "hangs" in source.last_error
    hanging.gate.set()
    wait_for(lambda: not source.last_error)


def test_a_hanging_mount_holds_up_neither_the_reader_nor_the_others(
    tmp_path: Path, start: Callable[..., StorageSource]
) -> None:
    hanging = Hanging("fsync_s")

    def probe(mount: Mount, begin: Callable[[str], None]) -> None:
        (hanging.probe if mount.name == "nfs" else probe_mount)(mount, begin)

    source = start(local(tmp_path, "nfs"), local(tmp_path, "disk"), probe=probe, deadline_s=60)
    assert hanging.begun.wait(60)
    rows = gathered(source, 3)
    assert {row["mount"] for row in rows} == {"disk"}
    hanging.gate.set()


def test_the_first_probe_of_all_can_be_waited_for(
    tmp_path: Path, start: Callable[..., StorageSource]
) -> None:
    source = start(local(tmp_path), interval_s=60)
    source.settle(10)
    assert len(list(source.read())) == 1
