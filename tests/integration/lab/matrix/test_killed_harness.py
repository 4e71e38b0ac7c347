"""A harness that is killed, or hangs, leaves nothing behind on the machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lab.matrix import processes
from lab.matrix.leases import (
    EndProcesses,
    Journal,
    Lease,
    RemoveGroups,
    ResetFile,
    ResumeProcesses,
)
from tests.integration.lab.matrix.conftest import TOY, scenario
from tests.unit.headroom.waiting import wait_for

#: Before it strikes, the command runs whole once, which takes a busy machine long.
LIMIT_S = 120.0
SLOW = "{kind: cpu_quota, at: 0s, share: 0.3}"
#: Stops all that carries the mark, and hangs.
STOPPING = """
import subprocess, sys, time
from lab.matrix import processes
from lab.matrix.faults.acts import PaceAct
from lab.matrix.leases import EndProcesses
from lab.matrix.running import holding
with holding() as journal:
    journal.take(EndProcesses("m1"), "the command runs", for_s=600)
    act = PaceAct("m1", 0.0, journal, for_s=float(sys.argv[1]))
    act.begin()
    print("acts", flush=True)
    time.sleep(600)
"""
#: Says that it was told to end, which it is not while it is stopped.
ENDING = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1]).touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("runs", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def harness(
    request: pytest.FixtureRequest, journals: Path, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A matrix of the toy that is slowed down, by the real command line."""
    fault = getattr(request, "param", SLOW)
    (tmp_path / "slow.yaml").write_text(scenario("slow", fault))
    command = [sys.executable, "-m", "headroom", "matrix", "run", "--scenario", "slow.yaml"]
    process = subprocess.Popen(
        [*command, "--repeat", "1", "--", sys.executable, str(TOY)],
        cwd=tmp_path,
        env=os.environ | {"TOY_STEPS": "80", "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.wait()


def leases(journals: Path) -> list[Lease]:
    """Return all leases but those of a journal that is being made: it has no name yet."""
    return [lease for folder in journals.glob("[!.]*") for lease in Journal(folder).leases()]


def of_kind(journals: Path, kind: type) -> list[Lease]:
    return [lease for lease in leases(journals) if isinstance(lease.undo, kind)]


def marks(journals: Path) -> list[str]:
    return [each.undo.mark for each in leases(journals) if isinstance(each.undo, EndProcesses)]


def test_nothing_is_left_of_a_killed_harness(
    harness: subprocess.Popen[bytes], journals: Path, tmp_path: Path, group: None
) -> None:
    wait_for(lambda: of_kind(journals, ResetFile), LIMIT_S)
    (held,) = [each.undo for each in of_kind(journals, ResetFile)]
    assert isinstance(held, ResetFile)
    # The lease comes first.
    wait_for(lambda: Path(held.path).read_text().strip() != held.value)
    groups = [each.undo.paths for each in leases(journals) if isinstance(each.undo, RemoveGroups)]
    (mark,) = marks(journals)[:1]
    running = processes.members(mark)
    environment = json.loads((tmp_path / "matrix/runs/slow-1/environment.json").read_text())
    storage = urlsplit(environment["HEADROOM_STORAGE_URL"])

    harness.kill()
    harness.wait()

    assert running
    wait_for(lambda: not journals.exists() or not list(journals.iterdir()), LIMIT_S)
    assert processes.members(mark) == []
    assert not any(Path(path).exists() for paths in groups for path in paths)
    assert not is_open(storage.hostname or "", storage.port or 0)


@pytest.mark.parametrize(
    "harness", ["{kind: link_latency, at: 0s, latency_s: 0.01}"], indirect=True
)
def test_its_network_is_gone(
    harness: subprocess.Popen[bytes], journals: Path, tmp_path: Path, room: None
) -> None:
    wait_for((tmp_path / "matrix/runs/slow-1/environment.json").exists, LIMIT_S)
    (network,) = {network_of(pid) for mark in marks(journals) for pid in processes.members(mark)}
    assert network != network_of(os.getpid())

    harness.kill()
    harness.wait()

    wait_for(lambda: not list(journals.iterdir()), LIMIT_S)
    assert network not in {network_of(int(each.name)) for each in Path("/proc").glob("[0-9]*")}


def test_what_is_stopped_goes_on_before_it_ends(journals: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with command(told) as job, hanging(for_s=600) as dead:
        wait_for(lambda: state_of(job.pid) == "T")
        dead.kill()
        dead.wait()
        wait_for(told.exists)
        job.wait(LIMIT_S)
    wait_for(lambda: not list(journals.iterdir()), LIMIT_S)


def test_a_lease_that_is_over_is_undone_while_the_harness_hangs(
    journals: Path, tmp_path: Path
) -> None:
    with command(tmp_path / "told") as job, hanging(for_s=0.5) as harness:
        wait_for(lambda: state_of(job.pid) == "T")
        # It stops them for ever; nor does it do anything more itself.
        os.kill(harness.pid, signal.SIGSTOP)
        wait_for(lambda: not of_kind(journals, ResumeProcesses), LIMIT_S)
        assert state_of(job.pid) != "T"
        assert of_kind(journals, EndProcesses)


def test_the_next_run_undoes_what_a_dead_guardian_left(journals: Path, tmp_path: Path) -> None:
    # A mark of its own: a guardian of the test before may be at its last work.
    with command(tmp_path / "told", mark="m2") as job:
        journal = Journal.create()
        journal.take(EndProcesses("m2"), "the command runs", for_s=600)
        journal.take(ResumeProcesses("m2"), "it is stopped", for_s=600)
        os.kill(job.pid, signal.SIGSTOP)
        undo = [sys.executable, "-m", "headroom", "matrix", "undo"]
        assert b"nothing" in subprocess.run(undo, check=True, capture_output=True).stdout
        # The lock goes with its holder.
        os.close(journal.__dict__["_lock"])
        said = subprocess.run(undo, check=True, capture_output=True).stdout
        assert said.splitlines() == [b"undone: it is stopped", b"undone: the command runs"]
        assert job.wait(LIMIT_S) is not None
    assert not list(journals.iterdir())


@contextlib.contextmanager
def command(told: Path, mark: str = "m1") -> Iterator[subprocess.Popen[bytes]]:
    marked = os.environ | {processes.MARK: mark}
    job = subprocess.Popen(
        [sys.executable, "-c", ENDING, str(told)], env=marked, stdout=subprocess.PIPE
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == b"runs\n"
        yield job
    finally:
        job.kill()
        job.communicate()


@contextlib.contextmanager
def hanging(*, for_s: float) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", STOPPING, str(for_s)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"acts\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def network_of(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


def is_open(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
