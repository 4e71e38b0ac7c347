"""Where the files of the cold tier lie: a directory, or a bucket of an object store.

A file appears whole or not at all, and is never changed afterwards. Paths are relative to the place
and have ``/`` between their parts.
"""

from __future__ import annotations

# PyArrow is imported in methods: only an object store needs it, and it is large.
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings

SUFFIX = ".parquet"
#: A file that is being written has this before its name, until it is renamed.
_UNFINISHED = ".unfinished-"


class Place(ABC):
    """A folder for files."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write a file durably: when this returns, it outlives a power cut."""

    @abstractmethod
    def get(self, path: str) -> bytes:
        """Return a file's bytes. Raises ``FileNotFoundError``."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def listed(self) -> Iterator[tuple[str, datetime]]:
        """Yield the path of each file, finished or not, and when it was written."""

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the address by which Polars reads the file."""


class Directory(Place):
    """A folder of this machine, or one that several mount."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, path: str, data: bytes) -> None:
        target = self._root / path
        self._make(target.parent)
        unfinished = target.with_name(_UNFINISHED + target.name)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
        _sync(target.parent)

    def _make(self, folder: Path) -> None:
        if folder.is_dir():
            return
        # Readings are nobody else's business: as private as the rest of the state folder.
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for each in (folder, *folder.parents):
            _sync(each)
            if each == self._root.parent:
                break

    def get(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def delete(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def listed(self) -> Iterator[tuple[str, datetime]]:
        for file in self._root.rglob(f"*{SUFFIX}"):
            at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
            yield file.relative_to(self._root).as_posix(), at

    def uri(self, path: str) -> str:
        return str(self._root / path)


def _sync(folder: Path) -> None:
    """Make a rename within ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket(Place):
    """A prefix in an object store, where a put is atomic and durable by itself.

    Credentials and endpoint come from the store's own variables, such as ``AWS_ACCESS_KEY_ID`` and
    ``AWS_ENDPOINT_URL``.
    """

    def __init__(self, url: str) -> None:
        from pyarrow import fs

        self._url = url.rstrip("/")
        self._files, root = fs.FileSystem.from_uri(self._url)
        self._root = root.rstrip("/")

    def put(self, path: str, data: bytes) -> None:
        with self._files.open_output_stream(f"{self._root}/{path}") as out:
            out.write(data)

    def get(self, path: str) -> bytes:
        with self._files.open_input_stream(f"{self._root}/{path}") as file:
            return bytes(file.readall())

    def delete(self, path: str) -> None:
        try:
            self._files.delete_file(f"{self._root}/{path}")
        except FileNotFoundError:
            return

    def listed(self) -> Iterator[tuple[str, datetime]]:
        from pyarrow import fs

        chosen = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        for info in self._files.get_file_info(chosen):
            if info.is_file and info.path.endswith(SUFFIX):
                yield info.path.removeprefix(f"{self._root}/"), info.mtime

    def uri(self, path: str) -> str:
        return f"{self._url}/{path}"


def place() -> Place:
    """Return where this installation keeps the cold tier."""
    return _place(settings.TELEMETRY_COLD_URL or str(settings.STATE_DIR / "cold"))


@cache
def _place(url: str) -> Place:
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Directory(Path(unquote(parts.path)).absolute())
    return Bucket(url)
