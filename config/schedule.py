"""Celery beat by the monotonic clock.

Celery's own schedulers compare moments of the wall clock: set back by three hours, it sends nothing
for three hours. This one counts what has passed, keeps nothing on disk, and begins anew with each
start: whatever comes seldom is then done within a minute.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler

from config import loops
from headroom import heartbeat

__all__ = ["MonotonicScheduler"]

log = structlog.get_logger(__name__)

#: After a start nothing waits longer than this for its first turn, s.
_FIRST_S = 60.0
#: What comes this often is due at once: while beat was away it was not done, s.
_OFTEN_S = 5.0
#: A message that waited for so long, or for its pace where that is longer, may be lost, s.
_PATIENCE_S = 4.0
#: The longest sleep, s.
_SLEEP_S = 1.0


class MonotonicScheduler(Scheduler):
    """Sends each entry of the schedule at its pace, unless its last message waits still."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Take over the schedule of the settings."""
        self.merge_inplace(self.app.conf.beat_schedule)
        loops.begin()
        now = time.monotonic()
        self._due = {name: now + _first_s(_pace_s(e)) for name, e in self.schedule.items()}

    def tick(self, *_: Any, **__: Any) -> float:
        """Send the messages that are due; return for how long there is nothing to do, s."""
        heartbeat.beat()
        for name, entry in self.schedule.items():
            now = time.monotonic()
            if now < self._due[name]:
                continue
            # What we missed is left out, not made up for in a burst.
            self._due[name] = max(self._due[name] + _pace_s(entry), now)
            self._send(name, entry, now)
            heartbeat.beat()
        return max(0.0, min(_SLEEP_S, min(self._due.values()) - time.monotonic()))

    def _send(self, name: str, entry: ScheduleEntry, now: float) -> None:
        waited_s = now - self._sent.get(name, now)
        try:
            headers = loops.announce(name, again=waited_s > max(_PATIENCE_S, _pace_s(entry)))
            if headers is None:
                self._sent.setdefault(name, now)
                return
            self._sent[name] = now
            entry.options = {**(entry.options or {}), "headers": headers}
            self.apply_async(entry, producer=self.producer, advance=False)
        except Exception as error:  # a broker that is away must not end beat
            log.warning("beat_could_not_send", entry=name, error=type(error).__name__)


def _first_s(pace_s: float) -> float:
    """Return the time from the start until something is first due, s."""
    return 0.0 if pace_s <= _OFTEN_S else min(pace_s, _FIRST_S)


def _pace_s(entry: ScheduleEntry) -> float:
    every: Any = entry.schedule
    return float(every.run_every.total_seconds())
