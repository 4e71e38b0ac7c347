"""The agent as a real process, and a server that hands out limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headroom.contracts import GpuColumns, Limit, LimitReport, LimitSet
from tests.standin.nvml import StandIn
from tests.unit.headroom.fake_server import Answer, FakeServer, Request

__all__ = ["AgentProcess", "LimitServer", "wait_for"]


class LimitServer(FakeServer):
    """Takes telemetry, and has limits in force while ``limits`` is not None."""

    def __init__(self) -> None:
        self.limits: list[Limit] | None = []
        self.valid_for_s = 60.0
        #: How far the server's clock is ahead of this machine's, s.
        self.ahead_s = 0.0
        super().__init__()

    def answer(self, request: Request) -> Answer:
        if request.path != "/api/v1/limits":
            return super().answer(request)
        self.requests.append(request)
        if self.limits is None:
            return Answer(404)
        now = time.time() + self.ahead_s
        answer = LimitSet(limits=self.limits, now=now, valid_for_s=self.valid_for_s)
        return Answer(200, msgspec.json.encode(answer))

    def limit(self, value: float, *, for_s: float = 600, limit_id: str = "l1", **more: int) -> None:
        """Put one more limit in force on the node of the tests."""
        expires_at = time.time() + self.ahead_s + for_s
        assert self.limits is not None
        made = Limit(
            id=limit_id, node="n1", kind="power_cap_w", value=value, expires_at=expires_at, **more
        )
        self.limits = [*self.limits, made]

    @property
    def asked_for_limits(self) -> int:
        return sum(request.path == "/api/v1/limits" for request in self.requests)

    @property
    def reports(self) -> list[LimitReport]:
        """What was told of limits, in order."""
        return [report for batch in self.all_stored() for report in batch.limits]

    @property
    def gpu_blocks(self) -> list[GpuColumns]:
        """The readings of GPUs, in order."""
        reports = [report for batch in self.all_stored() for report in batch.nodes]
        return [report.gpus for report in reports if report.gpus is not None]


class AgentProcess:
    """``python -m headroom agent`` on a stand-in machine, as node n1."""

    def __init__(self, machine: StandIn, server: LimitServer, *options: str) -> None:
        self.log = machine.control.with_name("agent.log")
        self.spool = machine.control.with_name("spool.sqlite")
        arguments = (
            *("--server", server.url, "--spool", str(self.spool), "--node", "n1"),
            *("--sample-s", "0.1", "--push-s", "0.3", *options),
        )
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headroom", "agent", *arguments],
                env={**os.environ, **machine.environment, "HEADROOM_TOKEN": "hra_x"},
                stderr=log,
            )

    @property
    def journal(self) -> Path:
        return self.spool.with_name("spool-limits.json")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def wait_until_killed(self) -> None:
        assert self.process.wait(60) == -signal.SIGKILL, self.log.read_text()

    @contextmanager
    def ended_in_the_end(self) -> Iterator[AgentProcess]:
        try:
            yield self
        finally:
            if self.process.poll() is None:
                self.kill()


def wait_for(
    condition: Callable[[], object], limit_s: float = 60.0, *, every_s: float = 0.02
) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(every_s)
