"""Values derived from one moment: made by whoever asks first, for all who ask later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

T = TypeVar("T")


class Once:
    """Values by their keys, each made once, also where many threads ask for it at a time."""

    def __init__(self, cost_s: float = 0.0) -> None:
        #: CPU time that went into the moment itself and into what was made of it, s
        self.cost_s = cost_s
        self._made: dict[Hashable, object] = {}
        # What is made may ask for other things of the same moment.
        self._lock = threading.RLock()

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return ``make()``, called once for each ``key``."""
        if key not in self._made:
            with self._lock:
                if key not in self._made:
                    self._made[key] = self._measured(make)
        return cast(T, self._made[key])

    def _measured(self, make: Callable[[], T]) -> T:
        before_s, began = self.cost_s, time.thread_time()
        made = make()
        # What was made on the way is a part of it, and is not counted twice.
        self.cost_s = before_s + time.thread_time() - began
        return made
