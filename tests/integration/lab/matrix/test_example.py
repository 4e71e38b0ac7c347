"""The example: training with PyTorch over gloo, and two ways in which it may be broken."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headroom.training.restarting import LEFT
from lab.matrix import reading
from lab.matrix.leases import Journal
from lab.matrix.playing import Subject
from lab.matrix.result import MatrixResult, Verdict
from lab.matrix.running import NORMAL, Plan, exit_code, run_matrix, standard
from tests.integration.lab.matrix.conftest import cell, scenario, unhurried, value
from tests.unit.headroom.waiting import wait_for

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "ddp"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
)


def run(script: str, plan: Plan, journal: Journal, folder: Path, *options: str) -> MatrixResult:
    subject = Subject((sys.executable, str(FOLDER / script), *options))
    return run_matrix(subject, plan, folder=folder, journal=journal, progress=lambda _: None)


def short(fault: str, *expect: str) -> Plan:
    """Return a plan whose times are in hundredths of the steps."""
    quick = reading.read(scenario("quick", fault, *expect).encode())
    return Plan(standard=[quick], repeat=1, timeout_s=120)


KILL = "{kind: kill, at: 60s}"
RESUMES = ("measure: resume_difference, value: 0", "measure: began_anew, value: 0")
QUICK = ("--steps", "80", "--work", "2", "--checkpoint-every", "5")


def test_it_learns_and_resumes_to_the_last_bit(journal: Journal, tmp_path: Path) -> None:
    result = run("train.py", short(KILL, *RESUMES), journal, tmp_path, *QUICK)
    for name in (NORMAL, "quick"):
        assert cell(result, name).verdict == Verdict.PASSED, cell(result, name)
    found = cell(result, "quick")
    assert value(found, "resubmissions") == 1
    first, last = (next(s for s in found.series if s.name == "loss").values[i] for i in (0, -1))
    assert first is not None
    assert last is not None
    assert last < 0.7 * first
    assert exit_code(result) == 0


@pytest.mark.slow(
    beside="tests/integration/lab/matrix/test_runs.py::"
    "test_checkpoints_that_are_not_what_they_were_to_be_are_caught"
)
def test_a_checkpoint_that_is_spoiled_on_resume_is_caught(journal: Journal, tmp_path: Path) -> None:
    result = run("broken_resume.py", short(KILL, *RESUMES), journal, tmp_path, *QUICK)
    assert cell(result, NORMAL).verdict == Verdict.PASSED, cell(result, NORMAL).why
    found = cell(result, "quick")
    assert found.verdict == Verdict.FAILED
    assert value(found, "resume_difference") > 0
    assert value(found, "checkpoints_corrupt") >= 1
    assert exit_code(result) == 1


@pytest.mark.slow
def test_what_computes_by_the_clock_is_caught_when_it_is_throttled(
    journal: Journal, tmp_path: Path
) -> None:
    plan = short("{kind: cpu_quota, at: 40s, share: 0.15}")
    result = run("broken_throttle.py", plan, journal, tmp_path, *QUICK)
    found = cell(result, "quick")
    assert found.verdict == Verdict.FAILED
    assert value(found, "loss_difference") > 0
    assert exit_code(result) == 1


@pytest.mark.slow
def test_it_shrinks_pauses_and_moves_as_it_is_told(journal: Journal, tmp_path: Path) -> None:
    names = {"smaller-batch", "pause-and-resume", "move"}
    plan = Plan(standard=[unhurried(each) for each in standard() if each.name in names])
    # Long enough to hear what it is told.
    result = run("train.py", plan, journal, tmp_path, "--steps", "300", "--step-s", "0.05")
    found = {each.scenario: (each.verdict, each.why) for each in result.cells}
    assert found == dict.fromkeys((NORMAL, *names), (Verdict.PASSED, ""))


@pytest.mark.slow
def test_it_passes_the_standard_matrix(journal: Journal, tmp_path: Path) -> None:
    plan = Plan(standard=[unhurried(each) for each in standard()])
    result = run("train.py", plan, journal, tmp_path)
    failed = {each.scenario: each.why for each in result.cells if each.verdict == Verdict.FAILED}
    assert failed == {}
    assert cell(result, "kill-and-resume").verdict == Verdict.PASSED
    assert cell(result, "storm").verdict in (Verdict.PASSED, Verdict.NOT_RUN)


class SlowStorage(BaseHTTPRequestHandler):
    """Takes a while for each file, as one far away does."""

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.3)
        self.send_response(201)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def slow_storage() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowStorage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_it_has_saved_its_last_step_when_it_was_told_to_leave(
    tmp_path: Path, slow_storage: str
) -> None:
    log = tmp_path / "steps.jsonl"
    files = {
        "HEADROOM_DIRECTIVES": "directives.json",
        "HEADROOM_STATUS": "status.json",
        "HEADROOM_STEP_LOG": "steps.jsonl",
        "HEADROOM_CHECKPOINT_DIR": "checkpoints",
    }
    endless = ["--steps", "100000", "--step-s", "0.02", "--checkpoint-every", "100000"]
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / "train.py"), *endless],
        env=os.environ
        | {name: str(tmp_path / each) for name, each in files.items()}
        | {"HEADROOM_STORAGE_URL": slow_storage},
        start_new_session=True,
    )
    try:
        wait_for(lambda: log.exists() and log.read_text().count("\n") > 5, 120)
        # One rank has nothing to write: it leaves while the other one still does.
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == LEFT
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    last = json.loads(log.read_text().splitlines()[-1])["step"]
    saved = sorted(each.name for each in (tmp_path / "checkpoints").iterdir())
    assert saved == [f"step-{last:06d}.pt", f"step-{last:06d}.pt.sha256"]


def test_it_ends_where_its_processes_cannot_meet(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, str(FOLDER / "train.py"), "--checkpoints", str(tmp_path)],
            env={**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            timeout=240,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "address already in use" in done.stderr
