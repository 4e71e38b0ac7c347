"""An installation on two hosts: one has Postgres, Valkey and beat, and both have web and workers.

Each has a state folder and a supervisor of its own, and knows the other by the two servers alone.
Agents come through a balancer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import psutil
import urllib3

from bench.stack import Stack, new_state_dir, running_on
from config.embedded.state import read_env
from tests.integration.faults.balancer import balancing

__all__ = ["Hosts", "running_on_two"]

#: What a host needs to know of an installation that it joins.
_SHARED = ("DATABASE_URL", "REDIS_URL", "SECRET_KEY", "METRICS_TOKEN")
_WORK = {
    "batches": 'headroom_telemetry_batches_total{outcome="accepted"}',
    "rounds": "headroom_telemetry_writer_seconds_count",
}


@dataclass
class Hosts(Stack):
    """Hosts of one installation. ``url`` is the balancer's, and what else is not said here is of
    the first of them."""

    hosts: Sequence[Stack] = ()

    def pids(self, name: str) -> list[psutil.Process]:
        """Return the processes of one service on all hosts."""
        return [process for host in self.hosts for process in host.pids(name)]

    def wait_ready(self, limit_s: float = 300.0) -> None:
        """Wait until each host is ready."""
        for host in self.hosts:
            host.wait_ready(limit_s)

    def work(self) -> list[dict[str, int]]:
        """Return of each host how many batches its web took, and how often its workers wrote."""
        return [{key: _metric(host, name) for key, name in _WORK.items()} for host in self.hosts]


def _metric(host: Stack, name: str) -> int:
    headers = {"Authorization": f"Bearer {host.environment['METRICS_TOKEN']}"}
    told = urllib3.request("GET", f"{host.url}/metrics", headers=headers).data.decode()
    found = [line.split()[-1] for line in told.splitlines() if line.startswith(f"{name} ")]
    return int(sum(map(float, found)))


@contextmanager
def running_on_two(*, shards: int) -> Iterator[Hosts]:
    """Run two hosts, whose agents are spread over ``shards``, until the end of the block."""
    env = {"TELEMETRY_SHARDS": str(shards)}
    with (
        new_state_dir() as first_dir,
        running_on(first_dir, "--no-demo", env=env) as first,
        new_state_dir() as second_dir,
    ):
        shared = {name: first.environment[name] for name in _SHARED}
        owner = read_env(first_dir / "owner-env")
        further = ("--no-demo", "--services", "web", "worker", "housekeeper")
        with running_on(second_dir, *further, env=env | shared | owner) as second:
            addresses = [(str(at.hostname), at.port or 80) for at in _places(first, second)]
            with balancing(addresses) as url:
                yield Hosts(url, first_dir, first.supervisor, (first, second))


def _places(*stacks: Stack) -> list[SplitResult]:
    return [urlsplit(stack.url) for stack in stacks]
