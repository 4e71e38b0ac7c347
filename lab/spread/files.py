"""Files that work reads: told by their content, and put on another host before it runs there."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from headroom.errors import HeadroomError

__all__ = ["Listing", "Part", "lay_out", "list_files"]


class BadListing(HeadroomError, ValueError):
    """A list of files leads out of its own folder, or a content is not the one that was listed."""


class Part:
    """Some of the entries of a folder: the rest is not read, and does not travel."""

    __slots__ = ("entries", "folder")

    def __init__(self, folder: Path, entries: tuple[str, ...]) -> None:
        self.folder = folder
        self.entries = entries


class Listing(msgspec.Struct, frozen=True):
    """A file or folder by its content."""

    name: str
    #: paths below the folder ("" where it is a file itself), each with its SHA-256
    files: tuple[tuple[str, str], ...]

    def sha256(self) -> str:
        """Return the digest of names and contents."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()


def list_files(given: Path | Part) -> tuple[Listing, dict[str, Path]]:
    """Return the listing of a file or folder, and where the content of each digest lies.

    Raises FileNotFoundError for a path that is not there. Entries of a :class:`Part` that are
    missing are left out: whoever reads them says so.
    """
    folder = given.folder if isinstance(given, Part) else given
    at: dict[str, Path] = {}
    rows = []
    for path in sorted(_found(given)):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        at[digest] = path
        below = "" if path == folder else path.relative_to(folder).as_posix()
        rows.append((below, digest))
    return Listing(folder.name, tuple(rows)), at


def lay_out(listing: Listing, below: Path, content_of: Callable[[str], bytes]) -> Path:
    """Put the files of a listing below a folder, once, and return their path.

    ``content_of`` returns the content for a digest. Raises :class:`BadListing`.
    """
    home = below / listing.sha256()
    place = home / _checked(listing.name or "folder")
    if home.is_dir():
        return place
    below.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=below) as draft:
        top = Path(draft) / "whole" / place.name
        top.parent.mkdir()
        if not listing.files or listing.files[0][0]:
            top.mkdir()
        for path, digest in listing.files:
            target = top / _checked(path) if path else top
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_verified(content_of(digest), digest, path))
        try:
            top.parent.rename(home)
        except OSError:
            # Another process was faster: its folder has the same content.
            if not home.is_dir():
                raise
    return place


def _found(given: Path | Part) -> Iterator[Path]:
    tops = [given] if isinstance(given, Path) else [given.folder / each for each in given.entries]
    if isinstance(given, Path) and not given.exists():
        raise FileNotFoundError(f"no such file or folder: {given}")
    for top in tops:
        if top.is_file():
            yield top
        elif top.is_dir():
            yield from (path for path in top.rglob("*") if path.is_file())


def _checked(path: str) -> PurePosixPath:
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts:
        raise BadListing(f"{path!r}: not a path below a folder")
    return found


def _verified(content: bytes, digest: str, path: str) -> bytes:
    if hashlib.sha256(content).hexdigest() != digest:
        raise BadListing(f"{path}: its content is not the one that was listed")
    return content
