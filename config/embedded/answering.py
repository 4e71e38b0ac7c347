"""Detects embedded servers that hang: they live, hold the port and the data, and do not answer."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import psycopg
import redis

from config import vitals
from config.embedded.servers import EmbeddedServers

__all__ = ["ServerVigil"]

#: A server that answered and does not for so long hangs, s.
_SILENT_S = 12.0
_ASK_EVERY_S = 2.0
_LOOK_EVERY_S = 1.0
_TIMEOUT_S = 2


def postgres_answers(url: str) -> bool:
    """Log in. A refusal ("starting up", "too many clients") is an answer too."""
    try:
        psycopg.connect(url, connect_timeout=_TIMEOUT_S).close()
    except psycopg.OperationalError as error:
        return error.sqlstate is not None or "FATAL" in str(error)
    return True


def valkey_answers(url: str) -> bool:
    """Ask for a sign of life. "Loading" is an answer too."""
    client = redis.Redis.from_url(
        url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=None
    )
    try:
        client.ping()
    except (redis.ConnectionError, redis.TimeoutError) as error:
        return isinstance(error, redis.BusyLoadingError)
    except redis.ResponseError:
        return True
    finally:
        client.close()
    return True


class ServerVigil:
    """Ends servers that hang; whoever keeps them running then starts them again.

    The asking is done by threads of its own, one for each server, since it may have to wait.
    """

    def __init__(self, servers: EmbeddedServers) -> None:
        self._servers = servers
        self._answers: dict[str, int] = {}
        self._silence: vitals.Silence[tuple[str, int]] = vitals.Silence()
        self._stops: vitals.Silence[int] = vitals.Silence()
        self._look_at = 0.0
        ways: Mapping[str, tuple[str | None, Callable[[str], bool]]] = {
            "postgres": (servers.database_url, postgres_answers),
            "valkey": (servers.redis_url, valkey_answers),
        }
        for name, (url, ask) in ways.items():
            if url:
                threading.Thread(target=self._ask, args=(name, url, ask), daemon=True).start()

    def look(self) -> list[tuple[str, str]]:
        """End servers that hang; return a message by the server's name. Cheap: call it often."""
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_EVERY_S
        return [*self._silent(now), *self._stopped(now)]

    def _silent(self, now: float) -> list[tuple[str, str]]:
        # By pid too: one that was just started has its whole time.
        marks = {
            (name, pid): self._answers[name]
            for name, pid in self._servers.pids.items()
            if pid is not None and name in self._answers
        }
        told = []
        for (name, pid), silent_s in self._silence.look(marks, now).items():
            if silent_s > _SILENT_S:
                _kill(pid)
                told.append((name, f"has not answered for {silent_s:.0f} s: ended by force"))
        return told

    def _stopped(self, now: float) -> list[tuple[str, str]]:
        """Look at the children of the servers: a backend that is stopped holds its locks."""
        mains = {pid: name for name, pid in self._servers.pids.items() if pid is not None}
        of = {
            pid: mains[main]
            for main, family in vitals.with_descendants(mains).items()
            for pid in family
        }
        told = []
        for pid, stopped_s in self._stops.look(dict.fromkeys(vitals.stopped(of)), now).items():
            if stopped_s > vitals.STOPPED_S:
                _kill(pid)
                text = f"process {pid} has been stopped for {stopped_s:.0f} s: ended by force"
                told.append((of[pid], text))
        return told

    def _ask(self, name: str, url: str, answers: Callable[[str], bool]) -> None:
        while True:
            if answers(url):
                self._answers[name] = self._answers.get(name, 0) + 1
            time.sleep(_ASK_EVERY_S)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
