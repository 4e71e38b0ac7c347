"""From a folder to a store: at once, or in two parts, of which only the first has a loop wait."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import FileIO
from pathlib import Path

import msgspec
from msgspec import Struct

from headroom.checkpoints import manifest as manifests
from headroom.checkpoints.chunks import digest_of, pieces
from headroom.checkpoints.errors import Fenced, NotTaken, NotWhole
from headroom.checkpoints.inputs import with_inputs
from headroom.checkpoints.manifest import About, Chunk, File, Manifest, Name
from headroom.checkpoints.promises import Clock, Promise, wait_for_none
from headroom.checkpoints.store import THREADS, Checkpoint, Store, not_whole, side_by_side
from headroom.errors import HeadroomError
from headroom.places import UNFINISHED, Directory

__all__ = ["finish", "save", "stage"]

#: How often damaged chunks are written anew before it is given up.
_ROUNDS = 3
_STAGED, _FILES = "staged", "files"


class _Staged(Struct):
    """What is known of a staged folder: the file ``DIGEST.json`` in it, by its own SHA-256.

    ``bytes`` are in it; ``boot_id`` names the life of the machine in which it was staged.
    """

    about: About
    saved_at: datetime
    bytes: int
    boot_id: str


def save(
    folder: Path,
    store: Store,
    about: About,
    *,
    saved_at: datetime | None = None,
    threads: int = THREADS,
    level: int = 1,
    clock: Clock | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Checkpoint:
    """Save all files of ``folder`` as a checkpoint that counts, and return it.

    Chunks that the store has are not written again, but all are read before it counts: it counts
    whole. The same folder, ``about`` and ``saved_at`` are the same checkpoint. ``level`` is
    Zstandard's. Inputs that were declared for this start (``HEADROOM_INPUTS`` of ``environment``)
    are in the manifest. Raises :class:`NotTaken` for a folder that changes meanwhile, or holds
    something else than files.
    """
    told = with_inputs(about, environment)
    return _save(folder, store, told, saved_at, threads, level, clock)


def _save(
    folder: Path,
    store: Store,
    about: About,
    saved_at: datetime | None,
    threads: int,
    level: int,
    clock: Clock | None,
) -> Checkpoint:
    clock = clock or Clock()
    at = saved_at or clock.now()
    promise = (
        f"saving/{manifests.checked_run(about.run)}/{about.epoch}-{about.step}-{at:%Y%m%dT%H%M%S%f}"
    )
    with Promise(store, promise, b"{}", clock):
        wait_for_none(store, clock)
        manifest, wrong = _written(folder, store, about, at, threads, level)
        found = Checkpoint(Name.of(manifest, manifests.encoded(manifest)), manifest)
        if wrong:
            raise not_whole(found.name, wrong)
        store.promote(found)
    return found


def _written(
    folder: Path, store: Store, about: About, at: datetime, threads: int, level: int
) -> tuple[Manifest, dict[str, str]]:
    """Write the chunks of a folder; return its manifest, and what is wrong with chunks."""
    known = {digest for digest, _ in store.chunks()}
    if not folder.is_dir():
        raise NotTaken(f"{folder} is no folder")
    for _ in range(_ROUNDS):
        writing = _Writing(folder, store, known, level)
        files = writing.all_files(threads)
        manifest = Manifest(
            saved_at=at,
            about=about,
            bytes=sum(file.bytes for file in files),
            files=files,
            folders=writing.empty_folders(),
        )
        wrong = store.wrong_with(manifest.chunks().items(), threads)
        if not wrong:
            break
        # Damaged ones that were there are written over.
        known -= wrong.keys()
    return manifest, wrong


class _Writing:
    """One walk through a folder, in which chunks are written that are not ``known``."""

    def __init__(self, folder: Path, store: Store, known: set[str], level: int) -> None:
        self._folder, self._store, self._level = folder, store, level
        self._known = set(known)

    def all_files(self, threads: int) -> list[File]:
        """Write all chunks, and return the files by path."""
        paths = sorted(path for path in self._folder.rglob("*") if not _is_folder(path))
        chunks: dict[str, dict[int, Chunk]] = {str(path): {} for path in paths}
        for path, number, chunk in side_by_side(self._write, self._pieces(paths), threads):
            chunks[path][number] = chunk
        return [self._file(path, chunks[str(path)]) for path in paths]

    def empty_folders(self) -> list[str]:
        """Return the paths of folders with nothing in them."""
        folders = (path for path in self._folder.rglob("*") if _is_folder(path))
        return sorted(
            path.relative_to(self._folder).as_posix() for path in folders if not any(path.iterdir())
        )

    def _pieces(self, paths: list[Path]) -> Iterator[tuple[str, int, bytes]]:
        for path in paths:
            with _opened(path, self._folder) as file:
                before = os.fstat(file.fileno())
                for number, data in enumerate(pieces(file, self._store.sizes)):
                    yield str(path), number, data
                _check_same(before, os.fstat(file.fileno()), path)

    def _write(self, piece: tuple[str, int, bytes]) -> tuple[str, int, Chunk]:
        path, number, data = piece
        digest = digest_of(data)
        if digest not in self._known:
            # Two may write the same one at once: it is the same file then.
            self._store.put_chunk(digest, data, self._level)
            self._known.add(digest)
        return path, number, Chunk(digest, len(data))

    def _file(self, path: Path, chunks: dict[int, Chunk]) -> File:
        ordered = [chunks[number] for number in range(len(chunks))]
        return File(
            path=path.relative_to(self._folder).as_posix(),
            bytes=sum(chunk.bytes for chunk in ordered),
            mode=stat.S_IMODE(path.stat().st_mode),
            chunks=ordered,
        )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _opened(path: Path, folder: Path) -> FileIO:
    """Open a file of the folder. A link within the folder is what it leads to."""
    target = path.resolve()
    if not target.is_relative_to(folder.resolve()):
        raise NotTaken(f"{path} leads out of the folder")
    if not target.is_file():
        raise NotTaken(f"{path} is no file")
    return target.open("rb", buffering=0)


def _check_same(before: os.stat_result, after: os.stat_result, path: Path) -> None:
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise NotTaken(f"{path} changed while it was saved")


def stage(
    folder: Path,
    store: Store,
    about: About,
    *,
    move: bool = False,
    clock: Clock | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Set ``folder`` aside to be saved by :func:`finish`, and return where it lies.

    This is all that a loop has to wait for: a copy within this machine, or with ``move``, where
    folder and store share a file system, no copy at all. What is staged outlives the process, not
    the machine: nobody waits here until it is on the disk. Inputs are told as by :func:`save`.
    """
    place = _own_disk(store)
    manifests.checked_run(about.run)
    # Now: whoever saves it may be another start.
    about = with_inputs(about, environment)
    at = (clock or Clock()).now()
    token = f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
    unfinished = place.root / _STAGED / f"{UNFINISHED}{token}"
    place.disk.make_folders(unfinished, place.root)
    if move:
        place.disk.rename(folder, unfinished / _FILES)
    else:
        shutil.copytree(folder, unfinished / _FILES)
    size, boot_id = _size(unfinished / _FILES), place.disk.boot_id()
    told = msgspec.json.encode(_Staged(about, at, size, boot_id))
    name = f"{digest_of(told)}.json"
    place.disk.put(unfinished / name, told, unfinished / f"{UNFINISHED}{name}")
    target = unfinished.with_name(token)
    place.disk.rename(unfinished, target)
    return target


def finish(
    store: Store, *, threads: int = THREADS, level: int = 1, clock: Clock | None = None
) -> Iterator[Checkpoint | HeadroomError]:
    """Save what is staged, the newest first; yield each checkpoint, or why it is none.

    May be ended anywhere and called again.
    """
    place = _own_disk(store)
    for folder in sorted((place.root / _STAGED).glob("[0-9]*-*"), reverse=True):
        try:
            known = _known_of(folder, place)
            yield _save(folder / _FILES, store, known.about, known.saved_at, threads, level, clock)
        except NotWhole as error:
            # The disk does not keep what is written: it stays staged.
            yield error
            continue
        except (Fenced, NotTaken) as error:
            yield error
        _remove(folder, place)


def _known_of(folder: Path, place: Directory) -> _Staged:
    """Return what is known of a staged folder. Raises :class:`NotTaken` where it may be torn."""
    for path in folder.glob("*.json"):
        told = path.read_bytes()
        if digest_of(told) == path.stem:
            known = msgspec.json.decode(told, type=_Staged)
            break
    else:
        raise NotTaken(f"{folder} cannot be saved: nothing says what it is")
    if known.boot_id != place.disk.boot_id():
        raise NotTaken(
            f"{folder} cannot be saved: the machine was started again after it was staged, and "
            "not all of it may have reached the disk"
        )
    if _size(folder / _FILES) != known.bytes:
        raise NotTaken(f"{folder} cannot be saved: it is not all that was staged")
    return known


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _remove(folder: Path, place: Directory) -> None:
    # Renamed first: half of it is not to be taken for all.
    gone = folder.with_name(f"{UNFINISHED}{folder.name}")
    place.disk.rename(folder, gone)
    shutil.rmtree(gone)


def _own_disk(store: Store) -> Directory:
    if not isinstance(store.place, Directory):
        raise NotTaken(f"{store} is no folder of this machine: nothing can be staged there")
    return store.place
