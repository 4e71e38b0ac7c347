"""Shared results: values that serve for some seconds, in each process, made once for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

T = TypeVar("T")

#: More are not kept: the oldest go.
_MOST = 256


class Memo:
    """Values by key, each for ``serves_s``."""

    def __init__(self, serves_s: float) -> None:
        self._serves_s = serves_s
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, object]] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, or its earlier value for ``key`` (two threads may both call it)."""
        found = self._kept.get(key)
        if found is not None and time.monotonic() - found[0] < self._serves_s:
            return cast(T, found[1])
        made = make()
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = (time.monotonic(), made)
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
        return made

    def forget(self) -> None:
        """Make the next call make everything anew. For tests."""
        with self._lock:
            self._kept.clear()
