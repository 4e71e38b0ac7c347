"""Manifests: what a checkpoint says of itself, as JSON that needs nothing of ours to be read.

The name of a manifest holds the SHA-256 of its bytes, and it names all of its chunks by theirs. So
whoever has the name can tell whether each byte of the checkpoint is the one that was saved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from headroom.checkpoints.chunks import MOST, digest_of
from headroom.checkpoints.errors import Damaged, NotTaken

__all__ = ["About", "Change", "Chunk", "File", "Manifest", "Name", "checked_run", "encoded", "read"]

FORMAT, SCHEMA = "headroom-checkpoint", 1

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_Count = Annotated[int, Meta(ge=0)]
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_AT = "%Y%m%dT%H%M%S%fZ"


class Change(Struct, frozen=True):
    """An input that was allowed to differ as a run was resumed at ``step`` from ``parent``.

    ``input`` is ``image``, ``code`` or ``data/NAME``; ``before`` and ``after`` are digests, empty
    where it was not declared.
    """

    input: str
    before: str
    after: str
    step: int
    parent: str


class About(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a loop says of a checkpoint. ``run`` names the training run, ``step`` its last step.

    ``epoch`` counts the starts of the run: a checkpoint of a later start counts before all of an
    earlier one. ``parent`` is the digest of the manifest that the run was resumed from. ``layout``
    says how many ways each kind of parallelism is (``{"data": 4, "tensor": 2}``), ``rng`` holds
    states of random generators or says which file does, ``data`` a checksum by name of a data set,
    ``features`` the definitions of features by name. ``inputs`` says of each input that the start
    declared whether it was verified, ``changes`` which were others in earlier starts of the run.
    ``keep`` has it outlive later ones. ``notes`` are the caller's own. All of it has to be plain
    JSON.
    """

    run: str
    step: _Count
    epoch: _Count = 0
    parent: str = ""
    code_revision: str = ""
    image_digest: str = ""
    data: dict[str, str] = {}
    inputs: dict[str, str] = {}
    changes: list[Change] = []
    features: dict[str, Any] = {}
    world_size: Annotated[int, Meta(ge=1)] = 1
    layout: dict[str, int] = {}
    rng: dict[str, Any] = {}
    keep: bool = False
    notes: dict[str, Any] = {}


class Chunk(Struct, frozen=True):
    """A part of a file: the SHA-256 of its bytes before they are packed, and how many there are."""

    sha256: _Digest
    bytes: Annotated[int, Meta(ge=1, le=MOST)]


class File(Struct, frozen=True):
    """A file of the checkpoint: its path within the folder, size, mode, and its chunks in order."""

    path: str
    bytes: _Count
    mode: _Count
    chunks: list[Chunk]


class Manifest(Struct, frozen=True, kw_only=True):
    """All of a checkpoint but its bytes. ``saved_at`` is in UTC; ``bytes`` the sum of the files'.

    ``folders`` are those without any file.
    """

    format: str = FORMAT
    schema: int = SCHEMA
    saved_at: datetime
    about: About
    bytes: _Count
    files: list[File]
    folders: list[str] = []

    def chunks(self) -> dict[str, int]:
        """Return the size in bytes of each chunk, by its digest, in the order of the files."""
        return {chunk.sha256: chunk.bytes for file in self.files for chunk in file.chunks}


class Name(NamedTuple):
    """The name of a manifest. Of two the one that counts before the other is the greater."""

    run: str
    epoch: int
    step: int
    saved_at: str
    digest: str

    def __str__(self) -> str:
        return f"{self.run}/{self.epoch:010d}-{self.step:012d}-{self.saved_at}-{self.digest}.json"

    @property
    def said(self) -> str:
        """How messages call the checkpoint."""
        return f"{self.run} at step {self.step} ({self.digest[:12]})"

    @property
    def at(self) -> datetime:
        """When it was saved."""
        return datetime.strptime(self.saved_at, _AT).replace(tzinfo=UTC)

    @classmethod
    def of(cls, manifest: Manifest, data: bytes) -> Name:
        """Return the name under which the manifest with the bytes ``data`` is stored."""
        about = manifest.about
        at = manifest.saved_at.astimezone(UTC).strftime(_AT)
        return cls(about.run, about.epoch, about.step, at, digest_of(data))

    @classmethod
    def parsed(cls, path: str) -> Name | None:
        """Return the name that the path of a file ends with, or None where it has none."""
        found = _NAME.search(path)
        if found is None:
            return None
        run, epoch, step, at, digest = found.groups()
        return cls(run, int(epoch), int(step), at, digest)


_NAME = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)/(\d{10})-(\d{12})-(\d{8}T\d{12}Z)-([0-9a-f]{64})\.json$"
)


def encoded(manifest: Manifest) -> bytes:
    """Return the manifest as it is stored. Raises :class:`NotTaken` for what JSON cannot hold."""
    try:
        return msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    except (TypeError, ValueError) as error:
        raise NotTaken(f"what is said about the checkpoint is no plain JSON: {error}") from error


def read(data: bytes, name: Name) -> Manifest:
    """Return the manifest that was stored as ``name``. Raises :class:`Damaged`."""
    if digest_of(data) != name.digest:
        raise Damaged("its manifest is not the one that was written")
    try:
        found = msgspec.json.decode(data, type=Manifest)
        if found.format != FORMAT or found.schema > SCHEMA:
            raise Damaged(f"its manifest is of schema {found.schema}, this reads up to {SCHEMA}")
        checked_run(found.about.run)
        for path in (*(file.path for file in found.files), *found.folders):
            _check_path(path)
        _check_sizes(found.files)
    except (msgspec.MsgspecError, NotTaken, UnicodeDecodeError) as error:
        raise Damaged(f"its manifest cannot be read: {error}") from error
    return found


def checked_run(run: str) -> str:
    """Return the name of a run. Raises :class:`NotTaken` for one that cannot be part of a path."""
    if not _RUN.fullmatch(run):
        raise NotTaken(f"run: {run!r} has to be of letters, digits, '.', '_' and '-', up to 128")
    return run


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\x00" in path:
        raise NotTaken(f"{path!r} leads out of the folder")


def _check_sizes(files: Iterable[File]) -> None:
    for file in files:
        if sum(chunk.bytes for chunk in file.chunks) != file.bytes:
            raise NotTaken(f"the chunks of {file.path} are not of its size")
