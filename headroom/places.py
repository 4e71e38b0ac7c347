"""Places for files: a folder, a bucket of an object store, or whatever else fsspec reaches.

A file appears whole or not at all, and is never changed afterwards. Paths are relative to the place
and have ``/`` between their parts. Credentials are found by the libraries themselves, in the
environment, in files of the user or with the machine's role: they pass through none of our code.
"""

from __future__ import annotations

# PyArrow, fsspec and Paramiko are imported in methods: not every place needs them.
import os
import re
import secrets
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from headroom.disk import Disk, Found
from headroom.errors import HeadroomError

__all__ = [
    "RETRIES",
    "UNFINISHED",
    "Bucket",
    "Directory",
    "Elsewhere",
    "NoSuchPlace",
    "Place",
    "Unreachable",
    "open_place",
    "told",
]

#: A file that is being written has this before its name, until it is renamed.
UNFINISHED = ".unfinished-"

#: How long a store may take to answer at all, and to go on, s; and how often it is asked.
_CONNECT_S, _REQUEST_S, RETRIES = 3.0, 15.0, 3
_CODE, _MESSAGE = re.compile(r"<Code>(.*?)</Code>"), re.compile(r"<Message>(.*?)</Message>")
#: Kinds of places whose files grow while they are written, and may be renamed at once.
_GROWING = {"file", "ftp", "hdfs", "local", "sftp", "smb", "ssh", "webhdfs"}


class Unreachable(HeadroomError):
    """The place cannot be used now."""

    retryable = True


class NoSuchPlace(HeadroomError):
    """The address names no kind of place that is installed here."""


class Place(ABC):
    """A folder for files. Where it cannot be used, methods raise :class:`Unreachable`."""

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
    def files(self, under: str = "") -> Iterator[Found]:
        """Yield each file, finished or not, in the folder ``under`` and below it."""


class Directory(Place):
    """A folder of this machine, or one that several mount."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root.absolute()
        self.disk = disk or Disk()

    def __str__(self) -> str:
        return str(self.root)

    def put(self, path: str, data: bytes) -> None:
        target = self.root / path
        # What is stored is nobody else's business.
        with self._told_of():
            self.disk.make_folders(target.parent, self.root)
            # Two may write the same file at once.
            name = f"{UNFINISHED}{secrets.token_hex(4)}-{target.name}"
            self.disk.put(target, data, target.with_name(name))

    def get(self, path: str) -> bytes:
        with self._told_of():
            return (self.root / path).read_bytes()

    def delete(self, path: str) -> None:
        with self._told_of():
            self.disk.remove(self.root / path)

    def files(self, under: str = "") -> Iterator[Found]:
        with self._told_of():
            yield from self.disk.files(self.root, under)

    @contextmanager
    def _told_of(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unreachable(f"{self} cannot be used: {error}") from error


class _Remote(Place):
    """A place that a library reaches, by errors of its own."""

    #: How the place is called where something is wrong with it.
    called: str
    #: What is raised where the other end is away.
    raised: tuple[type[Exception], ...] = (OSError, EOFError)

    def __str__(self) -> str:
        return self.called

    @contextmanager
    def _told_of(self) -> Iterator[None]:
        """Turn what the other end answers into :class:`Unreachable`; a missing file stays one."""
        try:
            yield
        except (FileNotFoundError, HeadroomError):
            raise
        except self.raised as error:
            raise Unreachable(f"{self.called} cannot be used: {told(error)}") from None


class Bucket(_Remote):
    """A prefix in a bucket of an S3-compatible store, where a file appears when all of it is there.

    ``url`` is ``s3://bucket/prefix``, ``endpoint`` the store's address where it is not Amazon's,
    ``called`` how messages call the place (its URL, unless told).
    """

    def __init__(self, url: str, *, region: str, endpoint: str = "", called: str = "") -> None:
        from pyarrow import fs

        self.url = url.rstrip("/")
        self.called = called or self.url
        self._root = self.url.removeprefix("s3://")
        parts = urlsplit(endpoint)
        self._files = fs.S3FileSystem(
            region=region,
            endpoint_override=parts.netloc or None,
            scheme=parts.scheme or None,
            connect_timeout=_CONNECT_S,
            request_timeout=_REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=RETRIES),
            # Small files then take one request.
            allow_delayed_open=True,
        )

    def put(self, path: str, data: bytes) -> None:
        # What fails before the store has been told that all is there leaves no file.
        with self._told_of(), self._files.open_output_stream(f"{self._root}/{path}") as out:
            out.write(data)

    def get(self, path: str) -> bytes:
        with self._told_of(), self._files.open_input_stream(f"{self._root}/{path}") as file:
            return bytes(file.readall())

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._told_of():
            self._files.delete_file(f"{self._root}/{path}")

    def files(self, under: str = "") -> Iterator[Found]:
        from pyarrow import fs

        folder = f"{self._root}/{under}".rstrip("/")
        chosen = fs.FileSelector(folder, allow_not_found=True, recursive=True)
        with self._told_of():
            found = self._files.get_file_info(chosen)
        for info in found:
            if info.is_file:
                yield Found(info.path.removeprefix(f"{self._root}/"), info.mtime, info.size)


class Elsewhere(_Remote):
    """A folder that fsspec reaches: ``sftp://user@host/folder``, ``gs://bucket/prefix``, and more.

    Where files grow while they are written, they are written under another name first. A host that
    is reached by SSH has to be known to this user (``~/.ssh/known_hosts``).
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.called = _without_password(url.rstrip("/"))
        self._url = url.rstrip("/")
        self._is_growing = urlsplit(url).scheme in _GROWING
        self._idle: list[Any] = []
        self._made: set[str] = set()
        if urlsplit(url).scheme in ("sftp", "ssh"):
            _have_known_hosts()
            self.raised = (*self.raised, _raised_by_ssh())
        try:
            with self._told_of():
                self._root = url_to_fs(self._url, skip_instance_cache=True)[1].rstrip("/")
        except (ImportError, ValueError) as error:
            raise NoSuchPlace(f"{self.called}: {error}") from error

    @contextmanager
    def _files(self) -> Iterator[Any]:
        """Give a connection that nobody else uses now; one that failed is not used again."""
        from fsspec.core import url_to_fs

        with self._told_of():
            try:
                found = self._idle.pop()
            except IndexError:
                found = url_to_fs(self._url, skip_instance_cache=True)[0]
            try:
                yield found
            except FileNotFoundError:
                self._idle.append(found)
                raise
            self._idle.append(found)

    def put(self, path: str, data: bytes) -> None:
        target = f"{self._root}/{path}"
        with self._files() as files:
            if not self._is_growing:
                files.pipe_file(target, data)
                return
            folder, _, name = target.rpartition("/")
            unfinished = f"{folder}/{UNFINISHED}{secrets.token_hex(4)}-{name}"
            self._make(files, folder)
            with files.open(unfinished, "wb") as file:
                file.write(data)
            files.mv(unfinished, target)

    def _make(self, files: Any, folder: str) -> None:
        if folder in self._made:
            return
        try:
            files.makedirs(folder, exist_ok=True)
        except OSError:
            # Somebody else made a part of it meanwhile.
            files.makedirs(folder, exist_ok=True)
        self._made.add(folder)

    def get(self, path: str) -> bytes:
        with self._files() as files:
            return bytes(files.cat_file(f"{self._root}/{path}"))

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._files() as files:
            files.rm_file(f"{self._root}/{path}")

    def files(self, under: str = "") -> Iterator[Found]:
        with self._files() as files:
            files.invalidate_cache()
            found = files.find(f"{self._root}/{under}".rstrip("/"), detail=True)
        for path, said in found.items():
            yield Found(path.removeprefix(f"{self._root}/"), _time_of(said), said["size"] or 0)


def _without_password(url: str) -> str:
    """Return an address as it may be shown."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", url)


def _time_of(said: dict[str, Any]) -> datetime:
    """Return when a file was written; kinds of places have names of their own for it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        at = said.get(name)
        if isinstance(at, datetime):
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        if isinstance(at, int | float):
            return datetime.fromtimestamp(at, UTC)
    return datetime.now(UTC)


def _have_known_hosts() -> None:
    """Have fsspec reach hosts by SSH that this user knows, and no others: it would take any."""
    import fsspec
    import paramiko
    from fsspec.implementations.sftp import SFTPFileSystem

    class KnownHosts(SFTPFileSystem):  # type: ignore[misc]
        def _connect(self) -> None:
            self.client = paramiko.SSHClient()
            self.client.load_system_host_keys()
            self.client.connect(self.host, timeout=_CONNECT_S, **self.ssh_kwargs)
            # Else each of many small requests waits for the answer to the one before.
            transport = self.client.get_transport()
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ftp = self.client.open_sftp()
            self.ftp.get_channel().settimeout(_REQUEST_S)

    for name in ("sftp", "ssh"):
        fsspec.register_implementation(name, KnownHosts, clobber=True)


def _raised_by_ssh() -> type[Exception]:
    import paramiko

    error: type[Exception] = paramiko.SSHException
    return error


def told(error: Exception) -> str:
    """Return in one line what is wrong with a place.

    Of a store's answer in XML its code and message alone are told: others of its fields repeat what
    was signed, and by which key.
    """
    text = str(error) or type(error).__name__
    said = [*_CODE.findall(text), *_MESSAGE.findall(text)]
    return " ".join([*text.partition("<?xml")[0].split(), ": ".join(said)]).rstrip()


def open_place(url: str, disk: Disk | None = None) -> Place:
    """Return the place at ``url``: a path, ``file://…``, ``s3://bucket/prefix``, or fsspec's.

    Where an S3-compatible store is, say ``AWS_ENDPOINT_URL`` and ``AWS_REGION``. Raises
    :class:`NoSuchPlace` for an address that nothing here can reach.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return Directory(Path(unquote(parts.path)), disk)
    try:
        if parts.scheme == "s3":
            region = os.environ.get("AWS_REGION", "us-east-1")
            return Bucket(url, region=region, endpoint=os.environ.get("AWS_ENDPOINT_URL", ""))
        return Elsewhere(url)
    except ModuleNotFoundError as error:
        raise NoSuchPlace(f"{url} needs: pip install 'headroom[checkpoints]' ({error})") from error
