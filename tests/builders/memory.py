"""What a process remembers of a database, and how it forgets that between two tests."""

from __future__ import annotations

import sys
from functools import lru_cache

from admission.allocation import open_attempts
from admission.cycle import holding
from admission.directives import placed
from fleet import snapshot
from fleet.cache import Cache, KeyedCache
from policies import current
from telemetry import agreements, naming, writer

__all__ = ["forget_all"]

_OURS = frozenset(
    ("accounts", "admission", "config", "dashboard", "fleet", "policies", "telemetry")
)


def forget_all() -> None:
    """Have this process know as little as one that has just begun.

    Every cache at the top of a module is emptied, so that none is left out that somebody adds. The
    fleet's arrays alone look whether they are still true: they are dear, and know it.
    """
    for cache in _caches(len(sys.modules)):
        cache.invalidate()
    snapshot.invalidate()
    current.invalidate()
    naming.invalidate()
    agreements.forget()
    open_attempts.invalidate()
    placed.invalidate()
    holding.forget()
    writer.forget_own()


@lru_cache(maxsize=1)
def _caches(modules: int) -> list[Cache[object] | KeyedCache]:
    """Return the caches of the modules that are loaded; ``modules``: how many there are."""
    # Threads of other tests may import meanwhile.
    ours = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] in _OURS]
    return [
        value
        for module in ours
        if module is not snapshot
        for value in list(vars(module).values())
        if isinstance(value, Cache | KeyedCache)
    ]
