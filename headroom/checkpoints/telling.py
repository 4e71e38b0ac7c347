"""What a keeper tells of its stores: which checkpoint is whole where, and how far behind it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from headroom.checkpoints.errors import Damaged
from headroom.checkpoints.lag import behind
from headroom.checkpoints.manifest import Name
from headroom.checkpoints.store import Checkpoint, Store
from headroom.contracts import StoreLag, StoreState, WholeCheckpoint
from headroom.errors import HeadroomError

__all__ = ["Teller"]

#: What has not changed is told again after so long, s: who listens may have missed it.
_AGAIN_S = 30.0


class _Seen(NamedTuple):
    """A checkpoint that counts in a store, and since when, by the clock of the place."""

    checkpoint: Checkpoint
    since: datetime


class Teller:
    """Tells ``send`` of the run that was saved last: of the own store, and of the other one.

    Sites are names of the inventory; an empty ``site`` is that of this machine, and without a
    ``target_site`` nothing is told of the other store.
    """

    def __init__(
        self,
        send: Callable[[StoreState], object],
        *,
        site: str = "",
        target_site: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._site, self._target_site = send, site, target_site
        self._monotonic = monotonic
        self._told_at = -float("inf")
        self._sent_bytes_per_s: float | None = None
        self._here: Mapping[Name, _Seen] = {}
        #: None: the other store was never reached
        self._there: Mapping[Name, _Seen] | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time to tell again."""
        return self._monotonic() - self._told_at >= _AGAIN_S

    def note_sent(self, count: int, seconds: float) -> None:
        """Note how many bytes went to the other store in which time."""
        if count and seconds > 0:
            self._sent_bytes_per_s = count / seconds

    def tell(self, store: Store, target: Store | None) -> None:
        """Look, and tell. Where the other store cannot be reached, tell how it was seen last.

        Raises what the own store does.
        """
        self._told_at = self._monotonic()
        run = _latest_run(store)
        if run is None:
            return
        self._here = _look(store, run, self._here)
        if not self._here:
            return
        self._send(self._state(run, self._site, self._here))
        if target is None or not self._target_site:
            return
        with suppress(HeadroomError):
            self._there = _look(target, run, {**(self._there or {}), **self._here})
        if self._there is not None:
            state = self._state(run, self._target_site, self._there)
            state.lag = _lag(self._here, self._there)
            state.sent_bytes_per_s = self._sent_bytes_per_s
            self._send(state)

    def _state(self, run: str, site: str, seen: Mapping[Name, _Seen]) -> StoreState:
        return StoreState(
            run=run,
            lease_epoch=max(self._here).epoch,
            site=site,
            checkpoint=_latest(seen) if seen else None,
        )


def _latest_run(store: Store) -> str | None:
    last = max(store.names(), key=lambda name: name.saved_at, default=None)
    return None if last is None else last.run


def _look(store: Store, run: str, known: Mapping[Name, _Seen]) -> dict[Name, _Seen]:
    """Return what counts in a store. A manifest that is known by its digest is not read again."""
    found = {}
    for name, since in store.counting(run).items():
        with suppress(Damaged):
            read = known[name].checkpoint if name in known else store.checkpoint(name)
            found[name] = _Seen(read, since)
    return found


def _latest(seen: Mapping[Name, _Seen]) -> WholeCheckpoint:
    name = max(seen)
    return WholeCheckpoint(
        epoch=name.epoch,
        step=name.step,
        saved_at=name.at.timestamp(),
        verified_at=seen[name].since.timestamp(),
        bytes=seen[name].checkpoint.manifest.bytes,
        digest=name.digest,
    )


def _lag(here: Mapping[Name, _Seen], there: Mapping[Name, _Seen]) -> StoreLag:
    found = behind(
        (each.checkpoint for each in here.values()), (each.checkpoint for each in there.values())
    )
    return StoreLag(
        checkpoints=found.checkpoints, steps=found.steps, seconds=found.seconds, bytes=found.bytes
    )
