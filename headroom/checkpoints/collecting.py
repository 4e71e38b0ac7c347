"""Retention: which checkpoints stay, and the removal of chunks that nobody needs any more.

The newest whole checkpoint of each run stays, whatever the rule says, and it is read first: without
one that is whole nothing of a run is removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from headroom.checkpoints.errors import NoCheckpoint
from headroom.checkpoints.manifest import Name
from headroom.checkpoints.promises import COLLECTING_S, Clock, Promise, collector, needed
from headroom.checkpoints.store import (
    THREADS,
    PassedOver,
    Store,
    chunk_path,
    latest_whole,
    side_by_side,
)
from headroom.places import UNFINISHED

__all__ = ["Collected", "Keep", "collect", "kept"]

#: A file that nobody has finished for so long is removed.
_UNFINISHED_AGE = timedelta(days=1)
#: Chunks are removed for so long at most after it was looked who needs them.
_REMOVE_FOR = timedelta(seconds=COLLECTING_S / 2)


@dataclass(frozen=True)
class Keep:
    """What stays of each run: its ``newest`` checkpoints, and one in every ``every_steps`` steps.

    Those whose ``about.keep`` is set stay, too. ``every_steps`` of 0 keeps none for that.
    """

    newest: int = 3
    every_steps: int = 0


@dataclass
class Collected:
    """What was removed, and why the rest was not.

    ``waits_for`` says who kept chunks from being removed, if anybody. ``passed_over`` are newer
    checkpoints than the newest whole one, ``unsafe`` the runs that have none.
    """

    checkpoints: list[Name] = field(default_factory=list)
    chunks: int = 0
    bytes: int = 0
    waits_for: str = ""
    passed_over: list[PassedOver] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)


def kept(names: Iterable[Name], rule: Keep) -> set[Name]:
    """Return which checkpoints of one run stay by the rule, which keeps one at the least."""
    ordered = sorted(names, reverse=True)
    chosen = set(ordered[: max(1, rule.newest)])
    if rule.every_steps:
        # Of each stretch of steps the first that was saved.
        first = {name.step // rule.every_steps: name for name in ordered}
        chosen |= set(first.values())
    return chosen


def collect(
    store: Store, rule: Keep, *, threads: int = THREADS, clock: Clock | None = None
) -> Collected:
    """Remove checkpoints that the rule does not keep, and chunks that no checkpoint needs.

    May be ended anywhere and called again. While a checkpoint is saved or arrives, its chunks stay.
    """
    clock, done = clock or Clock(), Collected()
    if collector(store, clock) is not None:
        done.waits_for = "another collection"
        return done
    everything = store.names()
    for run in sorted({name.run for name in everything}):
        _retire(store, run, [name for name in everything if name.run == run], rule, threads, done)
    promise = Promise(
        store, f"collecting/{secrets.token_hex(8)}.json", b"{}", clock, lasts_s=COLLECTING_S
    )
    try:
        _remove_chunks(store, threads, clock, done)
    finally:
        promise.end()
    return done


def _retire(
    store: Store, run: str, names: list[Name], rule: Keep, threads: int, done: Collected
) -> None:
    """Have checkpoints of one run count no more, the oldest first."""
    stay = kept(names, rule)
    stay |= {each.name for each in store.readable(run) if each.manifest.about.keep}
    gone = sorted(set(names) - stay)
    if not gone:
        return
    try:
        newest, passed_over = latest_whole(store, run, threads)
    except NoCheckpoint:
        done.unsafe.append(run)
        return
    done.passed_over += passed_over
    for name in gone:
        if name != newest.name:
            store.forget(name)
            done.checkpoints.append(name)


def _remove_chunks(store: Store, threads: int, clock: Clock, done: Collected) -> None:
    """Remove chunks that nobody needs; who needs any from now on waits for the end of this."""
    looked_at = clock.now()
    chunks = dict(store.chunks())
    wanted = needed(store, clock)
    if wanted is None:
        done.waits_for = "a checkpoint that is being saved here"
        return
    wanted |= {digest for each in store.readable() for digest in each.manifest.chunks()}

    def remove(digest: str) -> int | None:
        if clock.now() - looked_at > _REMOVE_FOR:
            return None
        store.place.delete(chunk_path(digest))
        return chunks[digest].size

    gone = [digest for digest in chunks if digest not in wanted]
    removed = [size for size in side_by_side(remove, gone, threads) if size is not None]
    done.chunks, done.bytes = len(removed), sum(removed)
    for found in store.place.files("chunks"):
        if UNFINISHED in found.path and clock.now() - found.at > _UNFINISHED_AGE:
            store.place.delete(found.path)
