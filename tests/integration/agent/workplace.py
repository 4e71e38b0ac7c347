"""A real agent that runs jobs, as root, and a server that wants what a test says."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil

from headroom.work.contract import (
    DesiredState,
    Order,
    SignalOrder,
    Task,
    WorkOrders,
    WorkReport,
    WorkReports,
)
from headroom.work.users import DEFAULT_UIDS
from tests.integration.agent.processes import LimitServer, wait_for
from tests.standin.nvml import StandIn
from tests.unit.headroom.fake_server import Answer, Request

__all__ = ["Workplace", "workplace"]

#: Where users of their own may pass, and no private /tmp hides it.
_PARENT = "/var/lib"
_GROUPS = Path("/sys/fs/cgroup")


def python_of_all() -> str:
    """Return a Python that every user of this machine may run: ours may lie in somebody's home."""
    for name in (sys.executable, "/usr/bin/python3"):
        found = Path(name).resolve()
        if found.exists() and all(p.stat().st_mode & stat.S_IXOTH for p in found.parents):
            return str(found)
    raise RuntimeError("no Python for all users: run tests/integration/agent/ensure-python.sh")


class WorkServer(LimitServer):
    """Beside limits, orders: what ``orders`` holds is wanted, by attempt."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self.told: dict[str, WorkReport] = {}
        self.fence_s: float | None = 60.0
        self.is_cut_off = False
        #: when each request for work came, by CLOCK_MONOTONIC
        self.asked: list[float] = []
        super().__init__()

    def answer(self, request: Request) -> Answer:
        if self.is_cut_off:
            return Answer(0, drop=True)
        if request.path != "/api/v1/work":
            return super().answer(request)
        self.asked.append(time.monotonic())
        if request.method == "POST":
            message = msgspec.json.decode(request.body, type=WorkReports)
            self.told |= {report.attempt: report for report in message.reports}
        answer = WorkOrders(
            now=time.time(), orders=list(self.orders.values()), poll_s=0.1, report_s=1.0,
            fence_s=self.fence_s,
        )  # fmt: skip
        return Answer(200, msgspec.json.encode(answer))


class Workplace:
    """A machine with a real agent on it, and jobs of several projects."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        self.server = WorkServer()
        self.machine = StandIn(folder, gpus=2)
        self.token = folder / "agent.token"
        self.token.write_text("hra_the-agents-secret")
        self.token.chmod(0o600)
        self.config = folder / "agent.toml"
        # Of its own: several of these may be on one machine.
        first = secrets.randbelow(1000) * 50 + DEFAULT_UIDS[0]
        self.uids = range(first, first + 50)
        text = f"[work]\nfolder = '{self.jobs}'\nuids = [{first}, {first + 49}]\n"
        self.config.write_text(text + config)
        self.config.chmod(0o600)
        self.log = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.attempts: list[str] = []
        self.is_finished = False

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def start_agent(self, *options: str) -> None:
        arguments = (
            *("--config", str(self.config), "--server", self.server.url, "--node", "n1"),
            *("--token-file", str(self.token), "--spool", str(self.folder / "spool.sqlite")),
            *("--sample-s", "0.5", "--push-s", "0.5", "--allow-jobs", *options),
        )
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headroom", "agent", *arguments],
                env={**os.environ, **self.machine.environment, "HEADROOM_TOKEN": "hra_of-the-env"},
                stdout=log,
                stderr=log,
            )

    def submit(self, job: str, script: str, *, project: str = "", **given: Any) -> str:
        """Have a job run, a shell's or Python's by its first line; return its key."""
        key = f"{job}/run/1"
        command = (
            [python_of_all(), "-I", "-c", script]
            if "import " in script
            else ["/bin/sh", "-c", script]
        )
        fields: dict[str, Any] = {
            "job": job, "phase": "run", "number": 1, "command": command, "rank": 0,
            "nodes": ["n1"], "gpus": [len(self.attempts) % 2], "gpus_of_node": 2, "grace_s": 1.0,
            "project": project or job, **given,
        }  # fmt: skip
        self._want(key, DesiredState.CLAIM, task=Task(**fields))
        self.attempts.append(key)
        return key

    def _want(self, key: str, wanted: DesiredState, **given: Any) -> None:
        self.server.orders[key] = Order(attempt=key, node="n1", wanted=wanted, **given)

    def release(self, key: str, signals: Sequence[SignalOrder] = ()) -> None:
        self._want(key, DesiredState.RUN, signals=list(signals))

    def run(self, job: str, script: str, **given: Any) -> str:
        key = self.submit(job, script, **given)
        wait_for(lambda: key in self.server.told, 30.0)
        self.release(key)
        return key

    def stop(self, key: str) -> None:
        self._want(key, DesiredState.STOP)

    def until(self, key: str, state: str, limit_s: float = 120.0) -> WorkReport:
        def is_so() -> bool:
            report = self.server.told.get(key)
            return report is not None and report.state == state

        try:
            wait_for(is_so, limit_s)
        except AssertionError as exc:
            raise AssertionError(f"{self.server.told.get(key)}\n{self.log.read_text()}") from exc
        return self.server.told[key]

    def place(self, key: str) -> Path:
        """Return the job's own place."""
        return self.jobs / "places" / self._number(key)

    def shims(self, key: str) -> Path:
        return self.jobs / "attempts" / self._number(key)

    def log_of(self, key: str) -> str:
        """Return what a job has said so far; it may be about to be put aside."""
        with contextlib.suppress(FileNotFoundError):
            return (self.shims(key) / "log").read_text(errors="replace")
        return ""

    def _number(self, key: str) -> str:
        return f"{self.attempts.index(key) + 1:08d}"

    def goes_round(self) -> None:
        """See that the agent asks again, twice."""
        count = len(self.server.asked)
        wait_for(lambda: len(self.server.asked) >= count + 2, 20.0)

    def finish(self) -> None:
        """End all jobs, have them forgotten, and end the agent."""
        for key in self.attempts:
            self.stop(key)
        for key in self.attempts:
            self.until(key, "ended")
            self._want(key, DesiredState.FORGET)
        wait_for(lambda: not list((self.jobs / "places").iterdir()))
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()
        self.is_finished = True

    def left_behind(self) -> list[str]:
        """Return what there is of jobs that are over: processes, groups, mounts, files."""
        found = [f"process {pid}" for pid in self.running()]
        found += [str(path) for path in self._groups()]
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        found += [line for line in mounts if str(self.jobs) in line]
        found += [str(path) for path in (self.jobs / "places").iterdir()]
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            found += [str(p) for p in Path(folder).iterdir() if p.lstat().st_uid in self.uids]
        return found

    def running(self) -> list[int]:
        """Return the pids of all that run as a user of a job."""
        found = psutil.process_iter(["pid", "uids"])
        return [p.info["pid"] for p in found if p.info["uids"] and p.info["uids"].real in self.uids]

    def store(self) -> str:
        with sqlite3.connect(self.jobs / "book.sqlite") as journal:
            return str(journal.execute("SELECT store FROM life").fetchone()[0])

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.server.close()
        for each in psutil.process_iter(["cmdline"]):
            if str(self.jobs) in " ".join(each.info["cmdline"] or ()):
                each.kill()
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)
        # A run that failed is not to leave them for good.
        for group in self._groups():
            with contextlib.suppress(OSError):
                group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _groups(self) -> list[Path]:
        with contextlib.suppress(sqlite3.Error):
            return list(_GROUPS.glob(f"**/headroom/{self.store()[:12]}-*"))
        return []


@contextmanager
def workplace(config: str = "", *options: str) -> Iterator[Workplace]:
    """Start an agent with ``config`` under ``[work]``."""
    folder = Path(tempfile.mkdtemp(prefix="headroom-jobs-test-", dir=_PARENT))
    folder.chmod(0o711)
    made = Workplace(folder, config)
    try:
        made.start_agent(*options)
        yield made
    finally:
        made.close()
