"""From one store to another: what the other lacks goes over the link and is verified there.

A checkpoint that is on its way has its manifest among the arrivals of the other store, so that its
chunks stay there. Begun anew, only what is not there yet is sent.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from headroom.checkpoints import manifest as manifests
from headroom.checkpoints.errors import Damaged, NotWhole
from headroom.checkpoints.manifest import Name
from headroom.checkpoints.pace import Pace
from headroom.checkpoints.promises import Clock, Promise, wait_for_none
from headroom.checkpoints.store import (
    THREADS,
    Checkpoint,
    Store,
    chunk_path,
    not_whole,
    side_by_side,
)

__all__ = ["Check", "Shipped", "arrive", "ship"]

#: How often a chunk that arrives damaged is sent again.
_TRIES = 3


class Check(StrEnum):
    """Which chunks are read back before a checkpoint counts at the other store.

    ``SENT``: all but those of checkpoints that count there. ``ALL``: those, too. ``THERE``: none;
    somebody at the other site calls :func:`arrive`, and until then it does not count.
    """

    SENT = "sent"
    ALL = "all"
    THERE = "there"


@dataclass(frozen=True)
class Shipped:
    """What became of a checkpoint: which, how many chunks it has and how many of them were sent.

    ``sent_bytes`` and ``read_bytes`` went over the link to the other store and back from it,
    ``raw_bytes`` is what the checkpoint holds.
    """

    name: Name
    chunks: int
    sent: int
    sent_bytes: int
    read_bytes: int
    raw_bytes: int


def ship(
    checkpoint: Checkpoint,
    source: Store,
    target: Store,
    *,
    pace: Pace | None = None,
    check: Check | str = Check.SENT,
    threads: int = THREADS,
    clock: Clock | None = None,
) -> Shipped:
    """Bring a checkpoint of ``source`` to ``target``, and have it count there.

    Raises :class:`NotWhole` where a chunk of the source is missing or damaged, or arrives damaged
    each time; :class:`~headroom.checkpoints.Fenced` where a later start of the run is there.
    """
    clock, check = clock or Clock(), Check(check)
    promise = Promise(
        target, f"arriving/{checkpoint.name}", manifests.encoded(checkpoint.manifest), clock
    )
    wait_for_none(target, clock)
    sending = _Sending(source, target, pace or Pace.of(None), promise, check)
    sending.run(checkpoint, threads)
    # What failed is tried again: until then its chunks stay, as long as the promise does.
    if check is not Check.THERE:
        try:
            target.promote(checkpoint)
        finally:
            # Also where it is fenced off: it will never count.
            promise.end()
    return sending.told(checkpoint)


def arrive(store: Store, *, threads: int = THREADS) -> list[Checkpoint | NotWhole]:
    """Verify what has arrived at ``store``, and have what is whole count; the rest stays there.

    For the other site: it reads at its own disk's speed what ``ship(check=Check.THERE)`` brought.
    Returns each arrival that counts now, or what it lacks.
    """
    found: list[Checkpoint | NotWhole] = []
    for name in store.arrivals():
        manifest = store.arriving(name)
        if manifest is None:
            continue
        wrong = store.wrong_with(manifest.chunks().items(), threads)
        if wrong:
            found.append(not_whole(name, wrong))
            continue
        checkpoint = Checkpoint(name, manifest)
        store.promote(checkpoint)
        store.has_arrived(name)
        found.append(checkpoint)
    return found


class _Sending:
    """One checkpoint on its way."""

    def __init__(
        self, source: Store, target: Store, pace: Pace, promise: Promise, check: Check
    ) -> None:
        self._source, self._target, self._pace, self._promise = source, target, pace, promise
        self._check = check
        self._lock = threading.Lock()
        self._sent = self._sent_bytes = self._read_bytes = 0

    def run(self, checkpoint: Checkpoint, threads: int) -> None:
        """Send what is missing, and verify what has to be."""
        name, chunks = checkpoint.name, checkpoint.manifest.chunks()
        there = {digest for digest, _ in self._target.chunks()}
        trusted = there & self._trusted(name.run)

        def bring(chunk: tuple[str, int]) -> tuple[str, str]:
            digest, size = chunk
            self._promise.keep()
            try:
                self._bring(digest, size, is_there=digest in there)
            except Damaged as error:
                return digest, str(error)
            return digest, ""

        wanted = ((digest, size) for digest, size in chunks.items() if digest not in trusted)
        wrong = {digest: why for digest, why in side_by_side(bring, wanted, threads) if why}
        if wrong:
            raise not_whole(name, wrong)

    def told(self, checkpoint: Checkpoint) -> Shipped:
        """Return what became of it."""
        return Shipped(
            checkpoint.name,
            chunks=len(checkpoint.manifest.chunks()),
            sent=self._sent,
            sent_bytes=self._sent_bytes,
            read_bytes=self._read_bytes,
            raw_bytes=checkpoint.manifest.bytes,
        )

    def _trusted(self, run: str) -> set[str]:
        """Return the chunks that need not be read: the target's, verified when they arrived."""
        if self._check is Check.ALL:
            return set()
        counted = self._target.readable(run)
        return {digest for each in counted for digest in each.manifest.chunks()}

    def _bring(self, digest: str, size: int, *, is_there: bool) -> None:
        """Have a chunk at the target, verified."""
        if is_there and (self._check is Check.THERE or self._is_good(digest, size)):
            return
        stored, _ = self._source.read_chunk(digest, size)
        for _ in range(_TRIES):
            self._pace.wait(len(stored))
            self._target.place.put(chunk_path(digest), stored)
            self._count(sent=1, sent_bytes=len(stored))
            if self._check is Check.THERE or self._is_good(digest, size):
                return
        raise Damaged(f"its bytes do not arrive at {self._target}")

    def _is_good(self, digest: str, size: int) -> bool:
        try:
            stored, _ = self._target.read_chunk(digest, size)
        except Damaged:
            return False
        self._count(read_bytes=len(stored))
        return True

    def _count(self, *, sent: int = 0, sent_bytes: int = 0, read_bytes: int = 0) -> None:
        with self._lock:
            self._sent += sent
            self._sent_bytes += sent_bytes
            self._read_bytes += read_bytes
