"""How Celery's workers show signs of life to the supervisor.

A worker beats from the loop that hands tasks to its processes. What those do is held to time limits
instead (``CELERY_TASK_ANNOTATIONS``), since a task may rightly take long.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.worker.consumer import Consumer

from headroom import heartbeat

__all__ = ["WorkerBeat", "WorkerConsumer"]

_EVERY_S = 1.0


class WorkerBeat(bootsteps.StartStopStep):
    """Beats from the event loop of a worker."""

    requires = ("celery.worker.components:Timer",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._timer: Any = None

    def start(self, parent: Any) -> None:
        """Begin with the worker."""
        heartbeat.beat()
        self._timer = parent.timer.call_repeatedly(_EVERY_S, heartbeat.beat)

    def stop(self, parent: Any) -> None:
        """End with the worker."""
        if self._timer is not None:
            self._timer.cancel()


class WorkerConsumer(Consumer):
    """Beats while it waits for a broker that is away: its loop does not run then."""

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, however long that takes."""
        over = heartbeat.keep()
        try:
            return super().ensure_connected(conn)
        finally:
            over.set()
