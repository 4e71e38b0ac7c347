"""Carries a schedule of faults out on real processes, and writes down what it did."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil
import redis
import urllib3

from bench.stack import Stack
from tests.integration.faults.agents import RealAgent
from tests.integration.faults.schedule import Blow, How

#: How long a victim may stay away before a blow: the supervisor waits up to 10 s between starts.
_AWAY_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Hit:
    """A blow that was carried out, at ``at_s`` since the start."""

    at_s: float
    victim: str
    how: How
    killed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.at_s:7.2f} s  {self.victim:<8} {self.how:<9} {', '.join(self.killed)}"


@dataclass
class Assault:
    """The faults of one run."""

    stack: Stack
    agents: Sequence[RealAgent]
    hits: list[Hit] = field(default_factory=list)
    unready_s: float = 0.0

    def carry_out(self, schedule: Sequence[Blow]) -> None:
        """Do what ``schedule`` says at its times, or as soon after as the victim is there."""
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=[done])
        watcher.start()
        start = time.monotonic()
        try:
            for blow in schedule:
                time.sleep(max(0.0, start + blow.at_s - time.monotonic()))
                killed = self._strike(blow)
                at_s = time.monotonic() - start
                self.hits.append(Hit(at_s, blow.victim, blow.how, tuple(killed)))
        finally:
            done.set()
            watcher.join()

    def report(self) -> dict[str, Any]:
        """Return what was done, for people and for files."""
        killed = {hit.victim: 0 for hit in self.hits}
        for hit in self.hits:
            killed[hit.victim] += 1
        return {
            "blows": len(self.hits),
            "by_victim": killed,
            "unready_s": round(self.unready_s, 1),
            "hits": [str(hit) for hit in self.hits],
        }

    def _strike(self, blow: Blow) -> list[str]:
        match blow.how, blow.victim:
            case How.FLUSH, _:
                return self._until_done(self._flush)
            case How.LOSE_DISK, _:
                return self._until_done(self._lose_disk)
            case How.ALL, "agent":
                return [f"{agent.name} {agent.kill()}" for agent in self.agents]
            case How.ONE, "agent":
                agent = _pick(list(self.agents), blow.draw)
                return [f"{agent.name} {agent.kill()}"]
            case How.ALL, service:
                return self._until_done(lambda: _kill(self.stack.pids(service)))
            case _, service:
                return self._until_done(lambda: self._kill_one(service, blow.draw))

    def _until_done(self, strike: Callable[[], list[str]]) -> list[str]:
        """Strike, and again while nobody is there: what was just hit may still be on its way up."""
        end = time.monotonic() + _AWAY_S
        while time.monotonic() < end:
            if killed := strike():
                return killed
            time.sleep(_POLL_S)
        raise TimeoutError(f"nothing to strike within {_AWAY_S} s: the supervisor has given up")

    def _kill_one(self, service: str, draw: float) -> list[str]:
        family = self.stack.family(service)
        return _kill([_pick(family, draw)]) if family else []

    def _flush(self) -> list[str]:
        with self._redis() as client, suppress(redis.RedisError):
            if waiting := _waiting(client):
                client.flushall()
                return [f"{waiting} messages"]
        return []

    def _lose_disk(self) -> list[str]:
        with self._redis() as client, suppress(redis.RedisError):
            if waiting := _waiting(client):
                # While it runs: it is started again faster than one could be sure to come in
                # between. It goes on to write into files that nobody finds again.
                shutil.rmtree(self.stack.state_dir / "valkey" / "appendonlydir")
                return [f"{waiting} messages", *_kill(self.stack.pids("valkey"))]
        return []

    def _redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.stack.environment["REDIS_URL"])

    def _watch(self, done: threading.Event) -> None:
        """Add up for how long /readyz was not 200."""
        pool = urllib3.PoolManager(retries=False)
        while not done.is_set():
            began = time.monotonic()
            ready = False
            with suppress(urllib3.exceptions.HTTPError):
                ready = pool.request("GET", f"{self.stack.url}/readyz", timeout=2.0).status == 200
            done.wait(_POLL_S)
            if not ready:
                self.unready_s += time.monotonic() - began


def _waiting(client: redis.Redis) -> int:
    """Return how many messages wait on streams: a wipe that finds none would prove little."""
    return sum(int(client.xlen(name)) for name in client.scan_iter(_type="stream"))


def _pick(among: list[Any], draw: float) -> Any:
    return among[int(draw * len(among))]


def _kill(processes: Sequence[psutil.Process]) -> list[str]:
    """Send SIGKILL to all of them and return those that were there."""
    killed = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            label = f"{process.name()} {process.pid}"
            process.kill()
            killed.append(label)
    return killed
