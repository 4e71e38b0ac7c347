"""Values that are dear to make: kept for a while, and shared by the threads of a process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, cast

__all__ = ["Cache", "KeyedCache"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept(Generic[T]):
    value: T
    of: Hashable
    version: Hashable


class Cache(Generic[T]):
    """One value, made again when it is too old: by one thread, and the others wait for it.

    ``max_age_s``: how old it may be. ``serves_stale``: while one thread makes it again, the others
    go on with the old one. ``clock`` returns seconds; after it was set back, the value is too old.
    """

    def __init__(
        self,
        max_age_s: float = math.inf,
        *,
        serves_stale: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_age_s = max_age_s
        self._serves_stale = serves_stale
        self._clock = clock
        self._lock = threading.Lock()
        # Replaced as one, so that who has no lock sees a value with what it is of.
        self._kept: _Kept[T] | None = None
        self._looked_at = -math.inf

    def get(
        self,
        make: Callable[[], T],
        *,
        of: Hashable = None,
        version: Callable[[], Hashable] | None = None,
        max_age_s: float | None = None,
        now: float | None = None,
    ) -> T:
        """Return the kept value, or make it.

        ``of``: what the value is of; one that is of something else is not returned. ``version``: is
        asked when the value is too old, and costs less than ``make``; while it returns the same,
        the value counts as new. ``max_age_s``: another limit for this call; with 0 it looks now.
        ``now``: the moment, s, where it is not the clock's.
        """
        limit_s = self._max_age_s if max_age_s is None else max_age_s
        at = self._clock() if now is None else now
        kept = self._young(of, limit_s, at)
        if kept is not None:
            return kept.value
        stale = self._kept if self._serves_stale and limit_s > 0 else None
        if stale is not None and stale.of == of:
            if not self._lock.acquire(blocking=False):
                return stale.value
        else:
            self._lock.acquire()
        try:
            at = self._clock() if now is None else now
            # Another thread may have made it meanwhile.
            return (self._young(of, limit_s, at) or self._looked(make, of, version, at)).value
        finally:
            self._lock.release()

    def peek(self) -> T | None:
        """Return the value, however old it is; None where there is none. It waits for nobody."""
        kept = self._kept
        return None if kept is None else kept.value

    def recheck(self) -> None:
        """Have the next call ask for the version, whatever the age of the value."""
        self._looked_at = -math.inf

    def invalidate(self) -> None:
        """Have the next call make the value, whatever its age and version."""
        with self._lock:
            kept = self._kept
            self._kept = None if kept is None else replace(kept, version=object())
            self._looked_at = -math.inf

    def _young(self, of: Hashable, limit_s: float, at: float) -> _Kept[T] | None:
        kept = self._kept
        if kept is None or kept.of != of:
            return None
        return kept if 0 <= at - self._looked_at < limit_s else None

    def _looked(
        self, make: Callable[[], T], of: Hashable, version: Callable[[], Hashable] | None, at: float
    ) -> _Kept[T]:
        # Before it is made, as is its time: what changes meanwhile is seen by the next look.
        found = None if version is None else version()
        kept = self._kept
        if kept is None or version is None or (kept.of, kept.version) != (of, found):
            kept = self._kept = _Kept(make(), of, found)
        self._looked_at = at
        return kept


class KeyedCache:
    """A :class:`Cache` for each key. Of more than ``most`` keys the oldest are forgotten."""

    def __init__(
        self, max_age_s: float, *, most: int = 256, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_age_s = max_age_s
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._caches: dict[Hashable, Cache[object]] = {}

    def get(self, key: Hashable, make: Callable[[], T], *, now: float | None = None) -> T:
        """Return the value of ``key``: as :meth:`Cache.get` does."""
        with self._lock:
            if key not in self._caches:
                self._caches[key] = Cache(self._max_age_s, clock=self._clock)
            cache = self._caches[key]
            while len(self._caches) > self._most:
                del self._caches[next(iter(self._caches))]
        return cast(T, cache.get(make, now=now))

    def invalidate(self) -> None:
        """Have the next calls make all values."""
        with self._lock:
            self._caches.clear()
