"""The whole of Headroom as real processes on its own folder, for benchmarks and fault tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import psutil
import urllib3

from config.embedded.state import read_env

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parent.parent
_START_S = 300.0

#: How to tell the processes of the stack by their command lines.
_MARKS = {
    "web": ("granian",),
    "worker": ("celery", " worker "),
    "beat": ("celery", " beat "),
    "postgres": ("postgres", " -D "),
    "valkey": ("valkey-server",),
}


@dataclass
class Stack:
    """A running installation."""

    url: str
    state_dir: Path
    supervisor: psutil.Process

    @property
    def environment(self) -> dict[str, str]:
        """The settings of the installation, for processes that are to use its servers."""
        return {**read_env(self.state_dir / "env"), "HEADROOM_STATE_DIR": str(self.state_dir)}

    def credential(self, kind: str) -> str:
        """Return an ``operator_token`` or another of what bench.django_in makes."""
        return self.credentials(kind)[0]

    def credentials(self, *kinds: str) -> list[str]:
        """Return several of them, made by one process: it takes seconds to begin."""
        made = subprocess.run(
            [sys.executable, "-m", "bench.django_in", *kinds],
            cwd=REPOSITORY,
            env=os.environ | self.environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return made.stdout.strip().splitlines()[-len(kinds) :]

    def pids(self, name: str) -> list[psutil.Process]:
        """Return the processes of one service, the parent first."""
        found = []
        for process in self.supervisor.children(recursive=True):
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(mark in line or mark in process.name() for mark in _MARKS[name]):
                found.append(process)
        return sorted(found, key=lambda process: process.create_time())

    def kill(self, name: str) -> None:
        """Send SIGKILL to every process of a service."""
        for process in self.pids(name):
            process.send_signal(signal.SIGKILL)

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time that each service and its children have used so far."""
        return {name: sum(map(_cpu_s, self.family(name))) for name in _MARKS}

    def family(self, name: str) -> list[psutil.Process]:
        """Return the processes of one service and all that these have started."""
        members = {process.pid: process for process in self.pids(name)}
        for process in list(members.values()):
            members.update({child.pid: child for child in process.children(recursive=True)})
        return list(members.values())

    def wait_ready(self, limit_s: float = _START_S) -> None:
        """Wait until /readyz is 200."""
        pool = urllib3.PoolManager(retries=False)
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            try:
                if pool.request("GET", f"{self.url}/readyz", timeout=2.0).status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                pass
            if not self.supervisor.is_running() or self.supervisor.status() == "zombie":
                raise RuntimeError(f"the stack has ended; its logs are in {self.state_dir}/logs")
            time.sleep(0.05)
        raise TimeoutError(f"{self.url}/readyz is not ready after {limit_s} s")


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process and of those children of it that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


@contextmanager
def running(*arguments: str) -> Iterator[Stack]:
    """Run ``python -m config.up --no-demo`` with ``arguments`` on a new folder, and stop it."""
    with new_state_dir() as state_dir, running_on(state_dir, "--no-demo", *arguments) as stack:
        yield stack


@contextmanager
def new_state_dir() -> Iterator[Path]:
    """Make a folder for an installation, and remove it in the end."""
    with tempfile.TemporaryDirectory(prefix="headroom-stack-") as folder:
        # The embedded Postgres, which is no root, has to pass.
        Path(folder).chmod(0o711)
        yield Path(folder) / "state"


@contextmanager
def running_on(
    state_dir: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[Stack]:
    """Run ``python -m config.up`` on ``state_dir``, with ``env``, until the end of the block."""
    port = free_port()
    command = [
        sys.executable, "-m", "config.up",
        "--port", str(port), "--state-dir", str(state_dir), *arguments,
    ]  # fmt: skip
    own = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    own |= env or {}
    with state_dir.with_name("up.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=own, stdout=log, stderr=log)
        try:
            stack = Stack(f"http://127.0.0.1:{port}", state_dir, psutil.Process(process.pid))
            stack.wait_ready()
            yield stack
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


#: What would lead the stack to the servers of whoever starts it.
_ELSEWHERE = frozenset({"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "HEADROOM_STATE_DIR"})


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def apart(measure: Callable[[], T]) -> T:
    """Return what ``measure`` does on a stack, and in a process, of its own.

    Django reads its settings once.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure).result()
