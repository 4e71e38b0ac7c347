"""Parts on Celery workers of many hosts, over one Redis or Valkey.

Who wants results writes each task under its key, for a while, and sends the key to a queue that
only workers with the same :func:`~lab.spread.fingerprint.fingerprint` take from: other code, or
other arithmetic, would give other bytes. A worker claims the key, for a while, and writes the
outcome. Everything lapses unless its owner is alive: without whoever asked, what has not begun is
not run; without its worker, a claim lapses and the task is sent again. Running a task twice does no
harm, as both come to the same bytes.

The only module of the laboratory that needs Celery and Redis.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import redis
from celery import Celery

from headroom.errors import HeadroomError
from lab.spread.fingerprint import fingerprint
from lab.spread.task import Outcome, Packed, Work, find_work, outcome_of, pack, unpack

__all__ = ["BrokerError", "outcomes", "serve"]

A = TypeVar("A")

_PREFIX = "headroom-lab"
_TASK = f"{_PREFIX}.run"
#: Signs of life of who asks and of who works are renewed by a third of the time that they last.
_LAPSES_S = 15
#: Outcomes, and files that tasks read, stay so long for somebody who comes back.
_STAYS_S = 86_400
_LOOKS_EVERY_S = 0.25
#: A task that was lost so often takes its workers along, most likely by its want of memory.
_MOST_SENT = 3
#: Only code within this package is run for a message.
_WITHIN = "lab"


class BrokerError(HeadroomError, RuntimeError):
    """The broker cannot be reached, or does not do what it is asked."""


# --- Who wants results ----------------------------------------------------------------------------


def outcomes(
    work: Work[A, Any], arguments: Sequence[A], url: str, say: Callable[[str], None]
) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes of a work on each of its arguments as workers end them.

    ``say`` is told when nobody works. Raises :class:`BrokerError`.
    """
    if not arguments:
        return
    with _reached(url) as client:
        asked = _Asked(client, url, say)
        for index, argument in enumerate(arguments):
            asked.ask(index, *pack(work, argument))
        try:
            yield from asked.ended()
        finally:
            asked.give_up()


class _Asked:
    """Tasks that somebody waits for."""

    def __init__(self, client: redis.Redis, url: str, say: Callable[[str], None]) -> None:
        self._client = client
        self._app = app_of(url)
        self._say = say
        self._indexes: dict[str, list[int]] = {}
        self._tasks: dict[str, bytes] = {}
        self._files: set[str] = set()
        self._sent: dict[str, int] = {}
        #: seen in a worker's hands, and when it was last seen anywhere
        self._begun: set[str] = set()
        self._seen_at: dict[str, float] = {}
        self._renewed_at = -float(_LAPSES_S)
        self._said_at = time.monotonic()

    def ask(self, index: int, packed: Packed, files: dict[str, Path]) -> None:
        """Ask for a task, and put the files that it reads where workers find them."""
        for digest in files.keys() - self._files:
            self._client.set(_key("file", digest), files[digest].read_bytes(), ex=_STAYS_S)
            self._files.add(digest)
        key = packed.key
        self._indexes.setdefault(key, []).append(index)
        self._tasks[key] = msgspec.msgpack.encode(packed)

    def ended(self) -> Iterator[tuple[int, Outcome]]:
        """Yield outcomes until there is one for each task."""
        while self._indexes:
            self._renew()
            for key in [*self._indexes]:
                outcome = self._looked(key)
                if outcome is not None:
                    self._client.delete(_key("task", key))
                    for index in self._indexes.pop(key):
                        yield index, outcome
            if self._indexes:
                self._warn()
                time.sleep(_LOOKS_EVERY_S)

    def give_up(self) -> None:
        """Take back what has not begun."""
        for key in self._indexes:
            self._client.delete(_key("task", key))

    def _renew(self) -> None:
        now = time.monotonic()
        if now - self._renewed_at < _LAPSES_S / 3:
            return
        self._renewed_at = now
        pipe = self._client.pipeline(transaction=False)
        for key in self._indexes:
            pipe.set(_key("task", key), self._tasks[key], ex=_LAPSES_S)
        for digest in self._files:
            pipe.expire(_key("file", digest), _STAYS_S)
        pipe.execute()

    def _looked(self, key: str) -> Outcome | None:
        found = _bytes(self._client.get(_key("done", key)))
        if found is not None:
            outcome = msgspec.msgpack.decode(found, type=Outcome)
            if outcome.error:
                # Whoever asks again wants it run again.
                self._client.delete(_key("done", key))
            return outcome
        now = time.monotonic()
        if self._client.exists(_key("claim", key)):
            self._begun.add(key)
            self._seen_at[key] = now
        elif key not in self._sent:
            self._send(key, now)
        elif self._is_lost(key, now):
            if self._sent[key] >= _MOST_SENT:
                said = f"lost with its worker {_MOST_SENT} times: perhaps it wants more memory"
                return Outcome(error=said, wall_s=0.0, host="")
            self._send(key, now)
        return None

    def _is_lost(self, key: str, now: float) -> bool:
        """Say whether a task is in no hands: its claim has lapsed, or the queue forgot it."""
        if key not in self._begun and self._client.llen(_queue()):
            self._seen_at[key] = now
        # An outcome that is just being written has its claim taken away next.
        wait_s = 4.0 * _LOOKS_EVERY_S if key in self._begun else _LAPSES_S
        return now - self._seen_at[key] > wait_s

    def _send(self, key: str, now: float) -> None:
        self._begun.discard(key)
        self._seen_at[key] = now
        self._sent[key] = self._sent.get(key, 0) + 1
        self._app.send_task(_TASK, [key], queue=_queue())

    def _warn(self) -> None:
        if time.monotonic() - self._said_at < _LAPSES_S:
            return
        self._said_at = time.monotonic()
        why = _why_nobody_works(self._client)
        if why:
            self._say(why)


def _why_nobody_works(client: redis.Redis) -> str:
    """Return what keeps workers from these tasks; empty: some take them."""
    own = fingerprint()
    others = []
    for name in client.scan_iter(f"{_PREFIX}:worker:*"):
        found = _bytes(client.get(name))
        if found is None:
            continue
        host, its = msgspec.msgpack.decode(found, type=tuple[str, type(own)])  # type: ignore[misc]
        if its == own:
            return ""
        differs = [
            part
            for part in ("code", "versions", "arithmetic")
            if getattr(its, part) != getattr(own, part)
        ]
        others.append(f"the worker on {host} differs in {', '.join(differs)}")
    return "; ".join(others) or "no worker: start one with python -m lab worker --broker URL"


# --- Who works ------------------------------------------------------------------------------------


def serve(url: str, *, processes: int) -> None:
    """Work on tasks until SIGTERM. Raises :class:`BrokerError`."""
    with _reached(url) as client, tempfile.TemporaryDirectory(prefix="headroom-lab-") as folder:
        app = app_of(url)

        # The argument is the key of a task.
        @app.task(name=_TASK)
        def run(key: str) -> None:
            with _reached(url) as own:
                run_one(own, key, Path(folder))

        # It warns root of pickle in the queue; ours takes nothing but JSON.
        warnings.filterwarnings("ignore", message="You're running the worker with superuser")
        words = ["--quiet", "worker", "--pool", "prefork", "--concurrency", str(processes)]
        words += ["--queues", _queue(), "--hostname", f"{_PREFIX}-{os.getpid()}@%h"]
        words += ["--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
        says = msgspec.msgpack.encode((socket.gethostname(), fingerprint()))
        with _renewing(client, _key("worker", f"{socket.gethostname()}:{os.getpid()}"), says):
            app.start(words)


def run_one(client: redis.Redis, key: str, folder: Path) -> None:
    """Run the task of a key, unless it is done, in other hands, or not wanted any more."""
    found = _bytes(client.get(_key("task", key)))
    if found is None or client.exists(_key("done", key)):
        return
    who = f"{socket.gethostname()}:{os.getpid()}".encode()
    if not client.set(_key("claim", key), who, nx=True, ex=_LAPSES_S):
        return
    with _renewing(client, _key("claim", key), who):
        outcome = _ran(client, msgspec.msgpack.decode(found, type=Packed), key, folder)
        client.set(_key("done", key), msgspec.msgpack.encode(outcome), ex=_STAYS_S)


def _ran(client: redis.Redis, packed: Packed, key: str, folder: Path) -> Outcome:
    begun = time.perf_counter()

    def content_of(digest: str) -> bytes:
        found = _bytes(client.get(_key("file", digest)))
        if found is None:
            raise BrokerError(f"a file that the task reads is gone from the broker: {digest}")
        return found

    try:
        if packed.key != key or packed.fingerprint != fingerprint().sha256():
            raise BrokerError("not the task of this key, or of this code")
        work = find_work(packed.work, within=_WITHIN)
        argument = unpack(work, packed, below=folder, content_of=content_of)
    except (HeadroomError, ImportError, msgspec.MsgspecError) as error:
        said = f"{type(error).__name__}: {error}"
        wall_s = time.perf_counter() - begun
        return Outcome(error=said, wall_s=wall_s, host=socket.gethostname())
    return outcome_of(work, argument)


# --- Both -----------------------------------------------------------------------------------------


def app_of(url: str) -> Celery:
    """Return the Celery application on a broker. It knows nothing of the server's."""
    app = Celery(_PREFIX, broker=url, fixups=[], set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,
        # A worker holds no more than it runs: others may be free.
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
    )
    return app


@contextmanager
def _reached(url: str) -> Iterator[redis.Redis]:
    try:
        client = redis.Redis.from_url(url)
        client.ping()
    except (redis.RedisError, ValueError) as error:
        raise BrokerError(f"--broker: {error}") from error
    try:
        yield client
    except redis.RedisError as error:
        raise BrokerError(f"the broker failed: {error}") from error
    finally:
        client.close()


@contextmanager
def _renewing(client: redis.Redis, key: str, value: bytes) -> Iterator[None]:
    """Keep a key while the block runs, and not much longer if the process dies."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_LAPSES_S / 3):
            client.set(key, value, ex=_LAPSES_S)

    client.set(key, value, ex=_LAPSES_S)
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        client.delete(key)


def _queue() -> str:
    return f"{_PREFIX}-{fingerprint().sha256()[:16]}"


def _key(kind: str, name: str) -> str:
    return f"{_PREFIX}:{kind}:{name}"


def _bytes(found: object) -> bytes | None:
    return cast("bytes | None", found)
