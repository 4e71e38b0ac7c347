"""Lanes have room for so many, and tell the rest at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from config.door.lanes import Lane, LaneFull, WaitedTooLong
from tests.loops import run


def test_jobs_are_answered_in_groups_and_each_with_its_own() -> None:
    sizes: list[int] = []
    may_go = threading.Event()

    def work(jobs: Sequence[int]) -> list[int]:
        may_go.wait(10)
        sizes.append(len(jobs))
        return [job * 2 for job in jobs]

    async def ask() -> list[int]:
        lane = Lane("test", work, threads=1, room=20, at_once=4)
        lane.start(asyncio.get_running_loop())
        asked = [asyncio.create_task(lane.do(number)) for number in range(10)]
        await asyncio.sleep(0.1)
        may_go.set()
        answers = await asyncio.gather(*asked)
        assert lane.open == 0
        return answers

    assert run(ask()) == [number * 2 for number in range(10)]
    assert max(sizes) == 4


def test_a_job_that_comes_alone_waits_for_others_a_little() -> None:
    sizes: list[int] = []

    def work(jobs: Sequence[int]) -> list[int]:
        sizes.append(len(jobs))
        return list(jobs)

    async def ask() -> None:
        lane = Lane("test", work, threads=1, room=20, at_once=4, linger_s=0.2)
        lane.start(asyncio.get_running_loop())
        first = asyncio.create_task(lane.do(0))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, *(lane.do(number) for number in (1, 2)))

    run(ask())
    assert sizes == [3]


def test_a_full_lane_says_so_and_a_waiter_is_given_up_in_time() -> None:
    may_go = threading.Event()

    async def ask() -> None:
        lane = Lane("test", _held(may_go), threads=1, room=2, patience_s=0.05)
        lane.start(asyncio.get_running_loop())
        first, second = (asyncio.create_task(lane.do(number)) for number in range(2))
        await asyncio.sleep(0.2)
        with pytest.raises(LaneFull):
            await lane.do(3)
        may_go.set()
        assert await first == 0
        with pytest.raises(WaitedTooLong):
            await second
        assert await lane.do(4) == 4

    run(ask())


def test_who_has_left_is_not_waited_for() -> None:
    may_go = threading.Event()

    async def ask() -> None:
        lane = Lane("test", _held(may_go), threads=1, room=2)
        lane.start(asyncio.get_running_loop())
        first = asyncio.create_task(lane.do(1))
        await asyncio.sleep(0.05)
        first.cancel()
        may_go.set()
        assert await lane.do(2) == 2
        assert lane.open == 0

    run(ask())


def test_an_error_reaches_who_asked_and_the_thread_goes_on() -> None:
    def work(jobs: Sequence[int]) -> list[int]:
        return [1 // job for job in jobs]

    async def ask() -> None:
        lane = Lane("test", work, threads=1, room=2)
        lane.start(asyncio.get_running_loop())
        with pytest.raises(ZeroDivisionError):
            await lane.do(0)
        assert await lane.do(1) == 1

    run(ask())


def test_a_lane_hangs_only_while_all_of_its_threads_are_at_one_job_for_too_long() -> None:
    may_go = threading.Event()

    async def ask() -> None:
        lane = Lane("test", _held(may_go), threads=2, room=3)
        lane.start(asyncio.get_running_loop())
        first = asyncio.create_task(lane.do(1))
        await asyncio.sleep(0.05)
        later = time.monotonic() + 60
        assert not lane.hangs(later, after_s=30)
        second = asyncio.create_task(lane.do(2))
        await asyncio.sleep(0.05)
        assert lane.hangs(later, after_s=30)
        assert not lane.hangs(later, after_s=90)
        may_go.set()
        await asyncio.gather(first, second)
        assert not lane.hangs(time.monotonic() + 60, after_s=30)

    run(ask())


def _held(may_go: threading.Event) -> Callable[[Sequence[int]], Sequence[int]]:
    def work(jobs: Sequence[int]) -> Sequence[int]:
        may_go.wait(10)
        return jobs

    return work
