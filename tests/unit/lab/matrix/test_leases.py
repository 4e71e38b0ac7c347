"""The journal of leases, and control groups as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.matrix import groups, leases
from lab.matrix.leases import Journal, LeaseError, RemoveGroups, ResetFile


def test_a_lease_is_on_disk_before_its_act_and_gone_after_its_undoing(tmp_path: Path) -> None:
    knob = tmp_path / "knob"
    knob.write_text("normal")
    journal = Journal.create(tmp_path / "runs")
    lease = journal.take(ResetFile(str(knob), "normal"), "a knob", for_s=60)
    assert Journal(journal.folder).leases() == [lease]
    knob.write_text("turned")
    journal.undo(lease)
    assert knob.read_text() == "normal"
    journal.undo(lease)
    assert journal.leases() == []
    journal.close()
    assert not journal.folder.exists()


def test_what_was_done_last_is_undone_first(tmp_path: Path) -> None:
    knob = tmp_path / "knob"
    knob.write_text("third")
    journal = Journal.create(tmp_path / "runs")
    for value in ("first", "second"):
        journal.take(ResetFile(str(knob), value), value, for_s=60)
    assert [lease.said for lease in journal.undo_all()] == ["second", "first"]
    assert knob.read_text() == "first"
    journal.close()


def test_what_cannot_be_undone_stays_and_keeps_nothing_else(tmp_path: Path) -> None:
    knob = tmp_path / "knob"
    knob.write_text("turned")
    journal = Journal.create(tmp_path / "runs")
    journal.take(ResetFile(str(knob), "normal"), "a knob", for_s=60)
    stuck = journal.take(ResetFile(str(tmp_path), "x"), "a folder", for_s=60)
    with pytest.raises(LeaseError, match="a folder: it could not be undone"):
        list(journal.undo_all())
    assert journal.leases() == [stuck]
    assert knob.read_text() == "normal"
    journal.close()
    assert journal.folder.exists()


def test_only_journals_of_dead_runs_are_abandoned(tmp_path: Path) -> None:
    alive = Journal.create(tmp_path)
    dead = Journal.create(tmp_path)
    dead.take(ResetFile(str(tmp_path / "missing"), "x"), "gone", for_s=60)
    dead.close()  # its lock goes, what is in force stays
    assert [each.name for each in leases.abandoned(tmp_path)] == [dead.name]
    assert [each.said for each in leases.undo_all(leases.abandoned(tmp_path))] == ["gone"]
    # What is gone is not made anew.
    assert not (tmp_path / "missing").exists()
    assert leases.abandoned(tmp_path) == []
    alive.close()


# --- Control groups, as the kernel shows them ----------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own"
    path.write_text("2:blkio:/\n1:cpu,cpuacct:/jobs\n0::/\n")
    return path


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path, own: Path) -> None:
    for name in ("cpu", "blkio"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").touch()
    group = groups.groups_of("g", tmp_path, own)
    assert group.paths == (f"{tmp_path}/cpu/g", f"{tmp_path}/blkio/g")
    path, value, normal = group.cpu_limit(0.5)
    assert (path.name, value, normal) == ("cpu.cfs_quota_us", "10000", "-1")
    limits = group.disk_limits("8:0", 1000.4)
    assert [each[1:] for each in limits] == [("8:0 1000", "8:0 0")] * 2


def test_version_2_has_one(tmp_path: Path, own: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu io")
    group = groups.groups_of("g", tmp_path, own)
    assert group.paths == (f"{tmp_path}/g",)
    assert group.cpu_limit(1.5)[1:] == ("30000 20000", "max 20000")
    assert group.disk_limits("8:0", 5)[0][1] == "8:0 rbps=5 wbps=5"
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "cpu.stat").write_text("usage_usec 3\nnr_throttled 7\n")
    (tmp_path / "g" / "io.stat").write_text("8:0 rbytes=10 wbytes=5 rios=1 wios=1\n")
    assert (group.throttled(), group.disk_bytes()) == (7, 15)


def test_a_machine_without_controllers_says_so(tmp_path: Path, own: Path) -> None:
    with pytest.raises(groups.GroupError, match="no controller"):
        groups.groups_of("g", tmp_path, own)
    (tmp_path / "cgroup.controllers").touch()
    with pytest.raises(groups.GroupError, match="may not limit CPU time"):
        groups.make("g", tmp_path, own)


def test_a_group_that_is_gone_is_removed(tmp_path: Path) -> None:
    RemoveGroups((str(tmp_path / "gone"),)).carry_out()
    assert list(tmp_path.iterdir()) == []
