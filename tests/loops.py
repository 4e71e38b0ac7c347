"""Coroutines of tests, where the thread of tests may have a loop already."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["run"]

Result = TypeVar("Result")


def run(asked: Coroutine[Any, Any, Result]) -> Result:
    """Run on a thread without an event loop: a browser of other tests may have left one here."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()
