"""Reports on limits that wait for a batch to carry them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from headroom.contracts import LimitReport, LimitState

__all__ = ["Reports"]

#: As many as a batch may have.
_MOST = 10_000
_ENDED = (LimitState.EXPIRED, LimitState.RESTORED)


class Reports:
    """Gathers reports; one that repeats the last on its limit and GPU is dropped."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[LimitReport] = deque(maxlen=_MOST)
        self._last: dict[tuple[str, int | None], LimitReport] = {}

    def add(self, report: LimitReport) -> None:
        """Add a report, unless it repeats the last. ``at`` is set here: since when it is so."""
        key = (report.limit, report.gpu)
        with self._lock:
            last = self._last.get(key)
            is_so_since = (
                last.at
                if last and (last.state, last.applied) == (report.state, report.applied)
                else self._clock()
            )
            report = msgspec.structs.replace(report, at=is_so_since)
            if report == last:
                return
            self._waiting.append(report)
            if report.state in _ENDED:
                self._last.pop(key, None)
            else:
                self._last[key] = report

    def forget(self, is_over: Callable[[LimitReport], bool]) -> None:
        """Forget the last reports that are over."""
        with self._lock:
            self._last = {key: last for key, last in self._last.items() if not is_over(last)}

    def take(self) -> list[LimitReport]:
        """Return the reports that wait, oldest first."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), deque(maxlen=_MOST)
        return waiting

    def put_back(self, reports: list[LimitReport]) -> None:
        """Queue reports again that could not be delivered."""
        with self._lock:
            self._waiting.extendleft(reversed(reports))
