"""A store of checkpoints: chunks by their digests, and a manifest for each checkpoint that counts.

=============================  ===================================================================
``chunks/ab/ab12….zst``        a chunk, by the SHA-256 of its bytes before they were packed
``manifests/RUN/….json``       a checkpoint that was whole when it was put here: it counts
``arriving/RUN/….json``        the manifest of one that is on its way here
``saving/RUN``                 one of that run is being saved here; which chunks it needs is unknown
``collecting/….json``          chunks are being removed here
``staged/…/``                  folders that are to be saved (of stores in a folder alone)
=============================  ===================================================================

The three in the middle are promises: see :mod:`headroom.checkpoints.promises`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from headroom.checkpoints import manifest as manifests
from headroom.checkpoints.chunks import SIZES, Buffers, Sizes, digest_of, packed, unpacked
from headroom.checkpoints.errors import Damaged, Fenced, NoCheckpoint, NotWhole
from headroom.checkpoints.manifest import Manifest, Name
from headroom.disk import Found
from headroom.places import Place, open_place

__all__ = ["THREADS", "Checkpoint", "PassedOver", "Store", "latest_whole", "side_by_side"]

#: How many chunks are worked on at a time, unless told.
THREADS = 8

_CHUNKS, _MANIFESTS = "chunks", "manifests"

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in a store: its manifest, and the name under which that is stored."""

    name: Name
    manifest: Manifest


class PassedOver(NamedTuple):
    """A checkpoint that is newer than the one taken, and why it was not."""

    name: Name
    why: str


class Store:
    """Checkpoints at a :class:`~headroom.places.Place`. Safe to use from several threads.

    What is saved here is cut into chunks of ``sizes``; that has to stay, to find chunks again.
    """

    def __init__(self, place: Place, sizes: Sizes = SIZES) -> None:
        self.place, self.sizes = place, sizes
        self._of_thread = threading.local()

    def _own_buffers(self) -> Buffers:
        """Return those of this thread."""
        found = getattr(self._of_thread, "buffers", None)
        if not isinstance(found, Buffers):
            found = self._of_thread.buffers = Buffers()
        return found

    @classmethod
    def at(cls, url: str | Path) -> Store:
        """Return the store at a path or URL, as :func:`headroom.places.open_place` takes it."""
        return cls(open_place(str(url)))

    def __str__(self) -> str:
        return str(self.place)

    def names(self, run: str = "") -> list[Name]:
        """Return the names of checkpoints that count, of one run or of all: the latest last."""
        return sorted(self.counting(run))

    def counting(self, run: str = "") -> dict[Name, datetime]:
        """Return since when each checkpoint counts, of one run or of all, by the place's clock."""
        under = f"{_MANIFESTS}/{manifests.checked_run(run)}" if run else _MANIFESTS
        found = ((Name.parsed(each.path), each.at) for each in self.place.files(under))
        return {name: at for name, at in found if name is not None}

    def checkpoint(self, name: Name) -> Checkpoint:
        """Return a checkpoint that counts. Raises :class:`Damaged` where its manifest is not."""
        return Checkpoint(name, self._manifest(_MANIFESTS, name))

    def readable(self, run: str = "") -> list[Checkpoint]:
        """Return the checkpoints that count, without those whose manifests are damaged."""
        found = []
        for name in self.names(run):
            with suppress(Damaged):
                found.append(self.checkpoint(name))
        return found

    def promote(self, checkpoint: Checkpoint) -> None:
        """Have a checkpoint count. Its chunks were verified before.

        Raises :class:`Fenced` where a later start of its run has checkpoints here.
        """
        name = checkpoint.name
        latest = max(self.names(name.run), default=name)
        if latest.epoch > name.epoch:
            raise Fenced(
                f"{name.said} is of start {name.epoch} of its run, and {self} has checkpoints of "
                f"start {latest.epoch}: it does not count"
            )
        self.place.put(f"{_MANIFESTS}/{name}", manifests.encoded(checkpoint.manifest))

    def forget(self, name: Name) -> None:
        """Have a checkpoint count no more. Its chunks stay."""
        self.place.delete(f"{_MANIFESTS}/{name}")

    def chunks(self) -> Iterator[tuple[str, Found]]:
        """Yield the digest of each chunk that is there, with its file."""
        for found in self.place.files(_CHUNKS):
            digest = found.path.rpartition("/")[2].removesuffix(".zst")
            if found.path == chunk_path(digest):
                yield digest, found

    def put_chunk(self, digest: str, data: bytes, level: int) -> None:
        """Pack and write a chunk."""
        self.place.put(chunk_path(digest), packed(data, level))

    def chunk(self, digest: str, size: int) -> memoryview:
        """Return the bytes of a chunk, which are there until this thread asks for the next one.

        Raises :class:`Damaged`, also where it is missing.
        """
        return self.read_chunk(digest, size)[1]

    def read_chunk(self, digest: str, size: int) -> tuple[bytes, memoryview]:
        """Return a chunk as it is stored, and its bytes, as :meth:`chunk` does."""
        try:
            stored = self.place.get(chunk_path(digest))
        except FileNotFoundError:
            raise Damaged("it is missing") from None
        data = unpacked(stored, size, self._own_buffers())
        if digest_of(data) != digest:
            raise Damaged("its bytes are not those that were saved")
        return stored, data

    def wrong_with(
        self, chunks: Iterable[tuple[str, int]], threads: int = THREADS
    ) -> dict[str, str]:
        """Read chunks (digest, size), and return what is wrong, by digest, with those damaged."""

        def look(chunk: tuple[str, int]) -> tuple[str, str]:
            try:
                self.chunk(*chunk)
            except Damaged as error:
                return chunk[0], str(error)
            return chunk[0], ""

        return {digest: why for digest, why in side_by_side(look, chunks, threads) if why}

    def check(self, name: Name, threads: int = THREADS) -> Checkpoint:
        """Read all of a checkpoint, and return it where it is whole.

        Raises :class:`Damaged` for its manifest, :class:`NotWhole` for chunks.
        """
        found = self.checkpoint(name)
        wrong = self.wrong_with(found.manifest.chunks().items(), threads)
        if wrong:
            raise not_whole(name, wrong)
        return found

    def arriving(self, name: Name) -> Manifest | None:
        """Return the manifest of a checkpoint that is on its way here, if it is."""
        with suppress(Damaged):
            return self._manifest("arriving", name)
        return None

    def arrivals(self) -> list[Name]:
        """Return the names of checkpoints that are on their way here: the latest last."""
        found = (Name.parsed(each.path) for each in self.place.files("arriving"))
        return sorted(name for name in found if name is not None)

    def has_arrived(self, name: Name) -> None:
        """Note that a checkpoint is on its way no more."""
        self.place.delete(f"arriving/{name}")

    def _manifest(self, kind: str, name: Name) -> Manifest:
        try:
            return manifests.read(self.place.get(f"{kind}/{name}"), name)
        except FileNotFoundError:
            raise Damaged("its manifest is missing") from None


def chunk_path(digest: str) -> str:
    """Return where a chunk lies in a store."""
    return f"{_CHUNKS}/{digest[:2]}/{digest}.zst"


def not_whole(name: Name, wrong: dict[str, str]) -> NotWhole:
    """Return the error for a checkpoint with chunks that are missing or damaged."""
    digest, why = next(iter(wrong.items()))
    return NotWhole(
        f"{name.said} is not whole: of chunk {digest[:12]} {why}; {len(wrong)} such", wrong
    )


def latest_whole(
    store: Store, run: str, threads: int = THREADS
) -> tuple[Checkpoint, list[PassedOver]]:
    """Return the newest checkpoint of ``run`` that is whole, and newer ones that are not.

    Reads all of it. Raises :class:`NoCheckpoint`.
    """
    passed_over: list[PassedOver] = []
    for name in reversed(store.names(run)):
        try:
            return store.check(name, threads), passed_over
        except (Damaged, NotWhole) as error:
            passed_over.append(PassedOver(name, str(error)))
    raise none_whole(store, run, passed_over)


def none_whole(store: Store, run: str, passed_over: list[PassedOver]) -> NoCheckpoint:
    """Return the error for a run of which nothing can be taken."""
    why = "; ".join(f"{name.said}: {said}" for name, said in passed_over)
    return NoCheckpoint(f"{store} has no whole checkpoint of {run}" + (f" ({why})" if why else ""))


def side_by_side(
    do: Callable[[Item], Result], items: Iterable[Item], threads: int = THREADS
) -> Iterator[Result]:
    """Yield what ``do`` returns for each item, in any order; some are done at the same time.

    Items are drawn as they are needed. What one raises is raised, and no further is begun.
    """
    with ThreadPoolExecutor(threads) as pool:
        begun: set[Future[Result]] = set()
        try:
            for item in items:
                if len(begun) >= 2 * threads:
                    done, begun = wait(begun, return_when=FIRST_COMPLETED)
                    yield from (each.result() for each in done)
                begun.add(pool.submit(do, item))
            done, begun = wait(begun)
            yield from (each.result() for each in done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
