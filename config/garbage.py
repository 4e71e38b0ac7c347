"""How often Python looks for cyclic garbage, in processes that live long and know a large fleet."""

from __future__ import annotations

import gc

__all__ = ["look_seldom"]


def look_seldom() -> None:
    """Look through all objects a few times a day instead of every few seconds.

    Nearly all garbage is freed by counting references, and what is young is looked through as
    before, if in larger portions. To look through the names of 12,500 nodes with all else takes
    tenths of a second, in which no thread of the process does anything.
    """
    gc.set_threshold(20_000, 20, 100)
