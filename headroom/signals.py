"""Signals that end a command: SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["call_on_stop"]


def call_on_stop(stop: Callable[[], None]) -> None:
    """Call ``stop`` on the first SIGTERM or SIGINT; a second one ends the process as usual.

    ``stop`` runs in a thread of its own: a handler may interrupt the main thread inside the very
    lock that an event needs to be set.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=stop, name="stop").start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
