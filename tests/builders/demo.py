"""The demo beside a server, in a thread of its own, and waiting for what it brings about."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.stack import Stack
from lab.demo import CONNECTIONS, Demo, Settings, Stage
from lab.enroll import Server, Stopped

#: Never there. What a demo looks into by default is the file of ``make run`` in this folder.
_NO_SURGES = Path(os.devnull, "surges.json")
_ENDS_WITHIN_S = 15.0


@contextmanager
def running_demo(
    server: Server, settings: Settings, *, stage: Stage | None = None, surges: Path = _NO_SURGES
) -> Iterator[Demo]:
    """Run a demo against ``server`` until the end of the block."""
    stop = threading.Event()
    demo = Demo(server, settings, stop=stop, stage=stage, surges=surges)

    def run() -> None:
        with suppress(Stopped):
            demo.run()

    thread = threading.Thread(target=run, name="demo")
    thread.start()
    try:
        yield demo
    finally:
        stop.set()
        thread.join(_ENDS_WITHIN_S)
        assert not thread.is_alive(), "the demo did not end"


@contextmanager
def heard_demo(
    stack: Stack,
    token: str,
    settings: Settings,
    *,
    stage: Stage | None = None,
    surges: Path = _NO_SURGES,
) -> Iterator[Demo]:
    """Run a demo against ``stack``; the block begins once all of its agents have been heard."""
    server = Server(stack.url, token, connections=CONNECTIONS)
    with running_demo(server, settings, stage=stage, surges=surges) as demo:
        until(lambda: demo.sources and demo.sources[-1].sender.outbox.counts.stored_batches, 90.0)
        yield demo


def until(condition: Callable[[], Any], limit_s: float) -> float:
    """Wait until something is true; return how long that took, s."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "it did not happen in time"
        time.sleep(0.1)
    return time.monotonic() - began
