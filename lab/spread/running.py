"""Running parts side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, TypeVar

from lab.spread.fingerprint import fingerprint
from lab.spread.kept import Kept
from lab.spread.task import Broken, Ended, Outcome, Packed, Work, ended_of, find_work, outcome_of
from lab.spread.task import pack as packed_of

__all__ = ["Progress", "Where", "run_all"]

A = TypeVar("A")
R = TypeVar("R")

#: Told after each part: how many have ended, how many there are, and what just has.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Where:
    """Where parts run: in so many processes here, or on the workers of a broker."""

    #: None: one for each core
    workers: int | None = None
    #: URL of a Redis or Valkey that workers take tasks from: ``python -m lab worker``
    broker: str | None = None
    #: told what is waited for, where that is not plain
    say: Callable[[str], None] = print


def run_all(
    work: Work[A, R],
    arguments: Sequence[A],
    *,
    where: Where | None = None,
    kept: Kept | None = None,
) -> Generator[Ended[A, R], None, None]:
    """Yield what came of a work on each of its arguments, as they end; those that are kept, first.

    Which of them runs where makes no difference to any result. Raises :class:`~lab.spread.Broken`
    when a process here is killed from outside; what has ended by then is kept.
    """
    where = where or Where()
    packs: list[Packed | None] = [None] * len(arguments)
    if kept is not None or where.broker:
        packs = [packed_of(work, each)[0] for each in arguments]
    left = []
    for index, (argument, packed) in enumerate(zip(arguments, packs, strict=True)):
        found = kept.get(packed.key) if kept is not None and packed is not None else None
        if found is None:
            left.append(index)
        else:
            yield ended_of(work, argument, found, was_kept=True)
    same_code = fingerprint().sha256() if kept is not None else ""
    for at, outcome in _outcomes(work, [arguments[index] for index in left], where, same_code):
        packed = packs[left[at]]
        if kept is not None and packed is not None:
            kept.put(packed.key, outcome)
        yield ended_of(work, arguments[left[at]], outcome)


def _outcomes(
    work: Work[A, Any], arguments: list[A], where: Where, same_code: str
) -> Iterator[tuple[int, Outcome]]:
    if where.broker:
        # Celery is imported only where there is a broker.
        from lab.spread.broker import outcomes

        return outcomes(work, arguments, where.broker, where.say)
    workers = min(len(arguments), where.workers or os.cpu_count() or 1)
    if workers <= 1:
        return ((index, outcome_of(work, each)) for index, each in enumerate(arguments))
    return _in_processes(work, arguments, workers, same_code)


def _in_processes(
    work: Work[A, Any], arguments: list[A], workers: int, same_code: str
) -> Iterator[tuple[int, Outcome]]:
    # Started anew: a process that has threads must not be forked, and what it has open stays here.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {
            pool.submit(_by_name, work.name, each, same_code): index
            for index, each in enumerate(arguments)
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise Broken("a process was killed, perhaps for want of memory") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _by_name(name: str, argument: Any, same_code: str) -> Outcome:
    """Run a part in a process of its own; refuse where its result would be kept for other code."""
    if same_code and fingerprint().sha256() != same_code:
        return Outcome(error="the code has changed while it ran: run it again", wall_s=0.0, host="")
    return outcome_of(find_work(name), argument)
