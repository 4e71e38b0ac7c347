"""Lanes: thread pools with a bounded queue, for whole requests.

Each kind of request has a lane of its own, so that one kind cannot take the threads of another.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Lane", "LaneFull", "WaitedTooLong"]

Job = TypeVar("Job")
Result = TypeVar("Result")


class LaneFull(Exception):
    """No room is left in the lane."""


class WaitedTooLong(Exception):
    """No thread came free in time."""


@dataclass(frozen=True, slots=True)
class _Turn(Generic[Job, Result]):
    job: Job
    answered: asyncio.Future[Result]
    #: monotonic, s
    queued_at: float


class Lane(Generic[Job, Result]):
    """A pool of threads that do jobs for an event loop.

    ``work`` takes up to ``at_once`` jobs and returns a result for each, in their order. A thread
    waits ``linger_s`` for others to come before it begins with fewer. There is
    room for ``room`` jobs, those at work included. What waited for longer than ``patience_s`` is
    not begun: whoever asked has been told, or has gone.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Job]], Sequence[Result]],
        *,
        threads: int,
        room: int,
        at_once: int = 1,
        linger_s: float = 0.0,
        patience_s: float = 10.0,
        afterwards: Callable[[Result], None] = lambda _result: None,
    ) -> None:
        self.name = name
        #: jobs that wait or are at work
        self.open = 0
        self._work = work
        self._threads = threads
        self._room = room
        self._at_once = at_once
        self._linger_s = linger_s
        self._patience_s = patience_s
        self._afterwards = afterwards
        self._turns: queue.SimpleQueue[_Turn[Job, Result]] = queue.SimpleQueue()
        #: since when threads are at their jobs, by thread
        self._began: dict[int, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads, which answer on ``loop``."""
        self._loop = loop
        for number in range(self._threads):
            name = f"{self.name}-{number + 1}"
            threading.Thread(target=self._serve, args=(loop,), name=name, daemon=True).start()

    async def do(self, job: Job) -> Result:
        """Run ``job`` on a thread. Raises :class:`LaneFull`, :class:`WaitedTooLong`."""
        if self._loop is None or self.open >= self._room:
            raise LaneFull
        answered: asyncio.Future[Result] = self._loop.create_future()
        self.open += 1
        self._turns.put(_Turn(job, answered, time.monotonic()))
        return await answered

    def hangs(self, now: float, after_s: float) -> bool:
        """Say whether each of its threads has been at one job for longer than ``after_s``.

        ``now`` is of ``time.monotonic``.
        """
        began = list(self._began.values())
        return len(began) == self._threads and all(now - each > after_s for each in began)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            turns = self._next()
            results = self._results(turns)
            loop.call_soon_threadsafe(self._deliver, turns, results)
            for result in results:
                if not isinstance(result, BaseException):
                    self._afterwards(result)

    def _next(self) -> list[_Turn[Job, Result]]:
        turns = [self._turns.get()]
        if self._linger_s and self._turns.qsize() + 1 < self._at_once:
            time.sleep(self._linger_s)
        while len(turns) < self._at_once:
            try:
                turns.append(self._turns.get_nowait())
            except queue.Empty:
                break
        return turns

    def _results(self, turns: list[_Turn[Job, Result]]) -> Sequence[Result | BaseException]:
        self._began[threading.get_ident()] = time.monotonic()
        try:
            return self._results_of(turns)
        finally:
            del self._began[threading.get_ident()]

    def _results_of(self, turns: list[_Turn[Job, Result]]) -> Sequence[Result | BaseException]:
        latest = time.monotonic() - self._patience_s
        if turns[0].queued_at < latest:
            return [WaitedTooLong()] * len(turns)
        try:
            return self._work([turn.job for turn in turns])
        except Exception as error:
            return [error] * len(turns)

    def _deliver(
        self, turns: list[_Turn[Job, Result]], results: Sequence[Result | BaseException]
    ) -> None:
        for turn, result in zip(turns, results, strict=True):
            self.open -= 1
            if turn.answered.done():
                continue  # who asked has gone
            if isinstance(result, BaseException):
                turn.answered.set_exception(result)
            else:
                turn.answered.set_result(result)
