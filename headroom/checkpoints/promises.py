"""Promises: what keeps those who remove chunks and those who need them out of each other's way.

Whoever needs chunks says so first, and looks for collectors then. A collector says first that it
collects, and looks then for who needs chunks. So of two at the same time at least one sees the
other, on any place that shows what was written. Promises of those who died run out.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from headroom.checkpoints.errors import Damaged
from headroom.checkpoints.manifest import Name
from headroom.checkpoints.store import Store
from headroom.disk import Found

__all__ = ["COLLECTING_S", "PROMISE_S", "Clock", "Promise", "collector", "needed", "wait_for_none"]

#: For how long it counts, s, that somebody needs chunks, and that somebody removes some.
PROMISE_S, COLLECTING_S = 24 * 3600.0, 300.0
#: After which part of its time a promise is renewed.
_RENEWED = 0.25
_LOOK_EVERY_S = 1.0


class Clock:
    """The time of day, and waiting."""

    def now(self) -> datetime:
        """Return the time."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Promise:
    """One promise: a file in a store, renewed by :meth:`keep` until the :meth:`end`."""

    def __init__(
        self, store: Store, path: str, data: bytes, clock: Clock, lasts_s: float = PROMISE_S
    ) -> None:
        self._store, self._path, self._data, self._clock = store, path, data, clock
        self._renew_after = timedelta(seconds=lasts_s * _RENEWED)
        self._write()

    def keep(self) -> None:
        """Renew the promise, if it is time to."""
        if self._clock.now() - self._at > self._renew_after:
            self._write()

    def end(self) -> None:
        """Take the promise back."""
        self._store.place.delete(self._path)

    def __enter__(self) -> Promise:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _write(self) -> None:
        # Read before: it counts from when it was written, or a little less.
        self._at = self._clock.now()
        self._store.place.put(self._path, self._data)


def collector(store: Store, clock: Clock) -> Found | None:
    """Return the promise of somebody who removes chunks now. One that has run out is removed."""
    for found in store.place.files("collecting"):
        if _counts(found, COLLECTING_S, clock):
            return found
        store.place.delete(found.path)
    return None


def wait_for_none(store: Store, clock: Clock) -> None:
    """Wait until nobody removes chunks: of those that are there, some may be gone soon."""
    while collector(store, clock) is not None:
        clock.sleep(_LOOK_EVERY_S)


def needed(store: Store, clock: Clock) -> set[str] | None:
    """Return the digests of chunks that arrivals need; None where that may be any.

    Promises that have run out are removed.
    """
    digests: set[str] = set()
    is_any = False
    for found in [*store.place.files("saving"), *store.place.files("arriving")]:
        if not _counts(found, PROMISE_S, clock):
            store.place.delete(found.path)
            continue
        name = Name.parsed(found.path)
        arriving = None if name is None else store.arriving(name)
        if arriving is None:
            is_any = is_any or _is_still_there(store, found)
        else:
            digests |= arriving.chunks().keys()
    return None if is_any else digests


def _is_still_there(store: Store, found: Found) -> bool:
    with suppress(FileNotFoundError, Damaged):
        store.place.get(found.path)
        return True
    return False


def _counts(found: Found, lasts_s: float, clock: Clock) -> bool:
    return clock.now() - found.at < timedelta(seconds=lasts_s)
