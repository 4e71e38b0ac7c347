"""What is kept, for how long, and who makes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from fleet.cache import Cache, KeyedCache

PATIENCE_S = 60.0


class Clock:
    """Says the time that it is told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make() -> Callable[[], int]:
    """Makes 1, then 2, then 3."""
    numbers: Iterator[int] = count(1)
    return lambda: next(numbers)


def test_it_is_made_once_until_it_is_too_old(clock: Clock, make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache(5.0, clock=clock)
    assert cache.peek() is None
    assert [cache.get(make), cache.get(make), cache.peek()] == [1, 1, 1]
    clock.now += 4.9
    assert cache.get(make) == 1
    clock.now += 0.1
    assert cache.peek() == 1
    assert cache.get(make) == 2


def test_a_value_of_a_time_to_come_is_too_old(clock: Clock, make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache(5.0, clock=clock)
    cache.get(make)
    clock.now -= 1.0
    assert cache.get(make) == 2


def test_none_is_a_value_too(clock: Clock) -> None:
    made: list[None] = []
    cache: Cache[None] = Cache(5.0, clock=clock)
    for _ in range(2):
        cache.get(lambda: made.append(None))
    assert len(made) == 1


def test_a_value_of_something_else_is_never_returned(make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache(serves_stale=True)
    assert [cache.get(make, of=each) for each in ("a", "a", "b", "a")] == [1, 1, 2, 3]


def test_a_call_may_have_limit_and_moment_of_its_own(make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache(5.0)
    assert cache.get(make, now=10.0) == 1
    assert cache.get(make, now=14.0) == 1
    assert cache.get(make, now=14.0, max_age_s=4.5) == 1
    assert cache.get(make, now=14.0, max_age_s=3.0) == 2
    assert cache.get(make, now=14.0, max_age_s=0.0) == 3


def test_while_its_version_is_the_same_it_counts_as_new(
    clock: Clock, make: Callable[[], int]
) -> None:
    cache: Cache[int] = Cache(5.0, clock=clock)
    asked: list[str] = []

    def get(version: str) -> int:
        def ask() -> str:
            asked.append(version)
            return version

        return cache.get(make, version=ask)

    assert get("v1") == 1
    clock.now += 4.0
    assert get("v2") == 1  # nobody asks before it is too old
    clock.now += 4.0
    assert get("v1") == 1
    clock.now += 4.0
    assert get("v1") == 1  # it was looked at four seconds ago
    clock.now += 4.0
    assert get("v2") == 2
    assert asked == ["v1", "v1", "v2"]


def test_rechecked_it_is_looked_at_and_invalidated_it_is_made(make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache()
    version = lambda: "same"  # noqa: E731
    assert cache.get(make, version=version) == 1
    cache.recheck()
    assert cache.get(make, version=version) == 1
    cache.invalidate()
    assert cache.peek() == 1  # for those who wait for nobody
    assert cache.get(make, version=version) == 2
    cache.recheck()
    assert cache.get(make) == 3  # without a version, to look is to make


def test_what_fails_is_tried_again(make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache()
    with pytest.raises(ZeroDivisionError):
        cache.get(lambda: 1 // 0)
    assert cache.get(make) == 1


class Slow:
    """A value that another thread is making, until it is let go on."""

    def __init__(self, cache: Cache[int], **options: float) -> None:
        self._cache, self._options = cache, options
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.made = 0
        self._threads = [threading.Thread(target=self._get)]

    def _make(self) -> int:
        self.made += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        return 7

    def _get(self) -> None:
        assert self._cache.get(self._make, **self._options) == 7  # type: ignore[arg-type]

    def __enter__(self) -> Slow:
        self._threads[0].start()
        assert self.begun.wait(PATIENCE_S)
        return self

    def join_in(self) -> threading.Thread:
        """Have one more thread ask for it."""
        self._threads.append(threading.Thread(target=self._get))
        self._threads[-1].start()
        return self._threads[-1]

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        for each in self._threads:
            each.join(PATIENCE_S)
            assert not each.is_alive()


def test_one_thread_makes_it_and_the_others_wait_for_it() -> None:
    cache: Cache[int] = Cache()
    with Slow(cache) as slow:
        other = slow.join_in()
        other.join(0.05)
        assert other.is_alive()
    assert slow.made == 1


def test_the_old_one_serves_while_it_is_made_again(clock: Clock, make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache(5.0, serves_stale=True, clock=clock)
    assert cache.get(make) == 1
    clock.now += 9.0
    with Slow(cache) as slow:
        assert cache.get(make) == 1
    assert slow.made == 1
    assert cache.get(make) == 7


def test_who_asks_for_the_newest_gets_no_old_one(clock: Clock, make: Callable[[], int]) -> None:
    cache: Cache[int] = Cache(5.0, serves_stale=True, clock=clock)
    cache.get(make)
    clock.now += 9.0
    with Slow(cache):
        found: list[int] = []
        other = threading.Thread(target=lambda: found.append(cache.get(make, max_age_s=0.0)))
        other.start()
        other.join(0.05)
        assert found == []
    other.join(PATIENCE_S)
    assert found == [2]


def test_what_changes_while_it_is_made_is_seen_by_the_next_look(clock: Clock) -> None:
    cache: Cache[str] = Cache(5.0, clock=clock)

    def slowly() -> str:
        clock.now += 6.0
        return "old"

    assert cache.get(slowly) == "old"
    assert cache.get(lambda: "new") == "new"


def test_keys_have_values_of_their_own_and_the_oldest_go(
    clock: Clock, make: Callable[[], int]
) -> None:
    cache = KeyedCache(5.0, most=2, clock=clock)
    assert [cache.get(key, make) for key in "aabbab"] == [1, 1, 2, 2, 1, 2]
    assert cache.get("c", make) == 3
    assert cache.get("b", make) == 2
    assert cache.get("a", make) == 4
    clock.now += 5.0
    assert cache.get("a", make) == 5
    cache.invalidate()
    assert cache.get("a", make) == 6
    assert cache.get("a", make, now=clock.now + 5.0) == 7
