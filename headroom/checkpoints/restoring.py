"""From a store to a folder: the newest checkpoint of which each byte is as it was saved."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headroom.checkpoints.errors import Damaged, NotTaken, NotWhole
from headroom.checkpoints.inputs import changes_since, note_resumed
from headroom.checkpoints.manifest import Change, File, Manifest, Name
from headroom.checkpoints.store import (
    THREADS,
    Checkpoint,
    PassedOver,
    Store,
    none_whole,
    not_whole,
    side_by_side,
)
from headroom.places import UNFINISHED

__all__ = ["Restored", "restore"]


@dataclass(frozen=True)
class Restored:
    """What was restored, and the newer checkpoints that were not, each with the reason.

    ``changes`` are the inputs that are others than then, and were allowed to be.
    """

    checkpoint: Checkpoint
    passed_over: list[PassedOver]
    changes: list[Change] = field(default_factory=list)


def restore(
    store: Store,
    folder: Path,
    run: str,
    *,
    name: Name | None = None,
    threads: int = THREADS,
    allow: Collection[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Restored:
    """Restore the newest whole checkpoint of ``run``, or the one with ``name``, as ``folder``.

    The folder appears whole, its files on the disk, or not at all, and must not be there before, or
    be empty. Inputs that were declared for this start (``HEADROOM_INPUTS`` of ``environment``) have
    to be those of the checkpoint, but for names in ``allow`` (``code``, ``data/corpus``), which
    later manifests tell.
    Raises :class:`~headroom.checkpoints.NoCheckpoint` where there is none,
    :class:`~headroom.checkpoints.InputsDiffer`; of one that was asked for by its name
    :class:`Damaged` or :class:`NotWhole`.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise NotTaken(f"{folder} is there already")
    folder.parent.mkdir(parents=True, exist_ok=True)
    passed_over: list[PassedOver] = []
    for each in reversed(store.names(run)) if name is None else [name]:
        try:
            found = store.checkpoint(each)
            changes = changes_since(each, found.manifest.about, environment, allow)
            _restore(store, found, folder, threads)
        except (Damaged, NotWhole) as error:
            if name is not None:
                raise
            passed_over.append(PassedOver(each, str(error)))
            continue
        note_resumed(each, found.manifest.about, changes, environment)
        return Restored(found, passed_over, changes)
    raise none_whole(store, run, passed_over)


def _restore(store: Store, found: Checkpoint, folder: Path, threads: int) -> None:
    unfinished = folder.with_name(f"{UNFINISHED}{secrets.token_hex(4)}-{folder.name}")
    unfinished.mkdir()
    try:
        wrong = _write(store, found.manifest, unfinished, threads)
        if wrong:
            raise not_whole(found.name, wrong)
        # Replaces a folder that is empty.
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _write(store: Store, manifest: Manifest, folder: Path, threads: int) -> dict[str, str]:
    """Write all files, and return what is wrong with chunks, by digest."""
    for path in manifest.folders:
        (folder / path).mkdir(parents=True, exist_ok=True)
    for file in manifest.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).touch(mode=0o600, exist_ok=False)
    wrong: dict[str, str] = {}

    def place(part: tuple[str, str, int, int]) -> None:
        path, digest, size, offset = part
        try:
            data = store.chunk(digest, size)
        except Damaged as error:
            wrong[digest] = str(error)
            return
        # Not held open: a checkpoint may have more files than a process may open.
        descriptor = os.open(folder / path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _write_at(descriptor, data, offset)
            # The disk begins with it while others are unpacked.
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def finish(file: File) -> None:
        descriptor = os.open(folder / file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, file.mode)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    for _ in side_by_side(place, _parts(manifest, wrong), threads):
        pass
    if not wrong:
        for _ in side_by_side(finish, manifest.files, threads):
            pass
    return wrong


def _write_at(descriptor: int, rest: memoryview, offset: int) -> None:
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


def _parts(manifest: Manifest, wrong: dict[str, str]) -> Iterator[tuple[str, str, int, int]]:
    """Yield path, digest, size and offset of each chunk, until something is wrong."""
    for file in manifest.files:
        offset = 0
        for chunk in file.chunks:
            if wrong:
                return
            yield file.path, chunk.sha256, chunk.bytes, offset
            offset += chunk.bytes
