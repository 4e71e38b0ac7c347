"""Work as a value: a function that other processes find by name, its argument, and its result.

Arguments and results are dataclasses, ``msgspec.Struct`` and what they hold; they travel as
MessagePack. Paths in an argument stand for the content of their files. So a task has a key by
content: the digest of its function's name, its argument with all files, and the
:func:`~lab.spread.fingerprint.fingerprint` of code, libraries and arithmetic.
"""

from __future__ import annotations

import hashlib
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from headroom.errors import HeadroomError
from lab.spread.files import Listing, Part, lay_out, list_files
from lab.spread.fingerprint import fingerprint

__all__ = [
    "Broken",
    "Ended",
    "Outcome",
    "Packed",
    "Work",
    "ended_of",
    "find_work",
    "outcome_of",
    "pack",
    "unpack",
]

A = TypeVar("A")
R = TypeVar("R")

_TRACEBACK_LINES = 8


class Broken(HeadroomError, RuntimeError):
    """A part raised an error, or was lost with its worker."""


class NoWork(HeadroomError, LookupError):
    """There is no work of that name."""


@dataclass(frozen=True)
class Work(Generic[A, R]):
    """A function of one argument.

    ``name`` is where this very object stands, as ``module:attribute``. Functions may raise what
    they like: it is the outcome of that part alone.
    """

    name: str
    function: Callable[[A], R]
    takes: Any
    gives: Any


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a task as it is stored: the encoded result, or an error."""

    result: bytes = b""
    #: the error in one line; empty: there is a result
    error: str = ""
    told: str = ""
    wall_s: float
    host: str


@dataclass(frozen=True)
class Ended(Generic[A, R]):
    """A part that has ended."""

    argument: A
    #: None where it broke
    result: R | None
    #: the error in one line, and the last frames of its traceback
    error: str = ""
    told: str = ""
    wall_s: float = 0.0
    host: str = ""
    #: it had been run before, and its result was kept
    was_kept: bool = False

    def value(self) -> R:
        """Return the result. Raises :class:`Broken` where there is none."""
        if self.result is None:
            raise Broken(f"{self.error}\n{self.told}".rstrip())
        return self.result


class Packed(msgspec.Struct, frozen=True):
    """A task as it travels: the name of its work, and its argument encoded."""

    work: str
    argument: bytes
    fingerprint: str

    @property
    def key(self) -> str:
        """Digest of all that the result depends on."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()


def find_work(name: str, *, within: str = "") -> Work[Any, Any]:
    """Return the work of a name ``module:attribute``.

    ``within``: the package that it must stand in; nothing else is imported. Raises
    :class:`NoWork`.
    """
    module, _, attribute = name.partition(":")
    if within and not module.startswith(f"{within}."):
        raise NoWork(f"{name}: work stands within {within}")
    found = getattr(import_module(module), attribute, None)
    if not isinstance(found, Work):
        raise NoWork(f"{name}: no work")
    return found


def pack(work: Work[A, Any], argument: A) -> tuple[Packed, dict[str, Path]]:
    """Return a task as it travels, and where the files that it names lie, by digest."""
    files: dict[str, Path] = {}

    def listed(value: object) -> Any:
        if not isinstance(value, Path | Part):
            raise TypeError(f"{type(value).__name__} cannot travel: take what msgspec encodes")
        listing, at = list_files(value)
        files.update(at)
        return msgspec.to_builtins(listing)

    encoder = msgspec.msgpack.Encoder(enc_hook=listed, order="deterministic")
    return Packed(work.name, encoder.encode(argument), fingerprint().sha256()), files


def unpack(
    work: Work[Any, Any], packed: Packed, *, below: Path, content_of: Callable[[str], bytes]
) -> Any:
    """Return the argument of a task that has come from elsewhere, its files below a folder."""

    def laid_out(kind: type, value: Any) -> Any:
        listing = msgspec.convert(value, Listing)
        path = lay_out(listing, below, content_of)
        entries = sorted({each.split("/")[0] for each, _ in listing.files})
        return Part(path, tuple(entries)) if kind is Part else path

    return msgspec.msgpack.decode(packed.argument, type=work.takes, dec_hook=laid_out)


def _as_number(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot travel: give what msgspec encodes")


_RESULTS = msgspec.msgpack.Encoder(enc_hook=_as_number, order="deterministic")


def outcome_of(work: Work[A, Any], argument: A) -> Outcome:
    """Run a part here, and return its outcome, whatever it is."""
    begun = time.perf_counter()
    try:
        result = _RESULTS.encode(work.function(argument))
    except Exception as error:  # it is this part's alone
        told = "".join(traceback.format_exception(error)[-_TRACEBACK_LINES:])
        said = f"{type(error).__name__}: {error}"
        return Outcome(error=said, told=told, wall_s=_since(begun), host=socket.gethostname())
    return Outcome(result=result, wall_s=_since(begun), host=socket.gethostname())


def ended_of(
    work: Work[A, R], argument: A, outcome: Outcome, *, was_kept: bool = False
) -> Ended[A, R]:
    """Return a part that has ended, with its result decoded."""
    result = None
    if not outcome.error:
        result = msgspec.msgpack.decode(outcome.result, type=work.gives)
    return Ended(
        argument,
        result,
        outcome.error,
        outcome.told,
        outcome.wall_s,
        outcome.host,
        was_kept,
    )


def _since(begun: float) -> float:
    return time.perf_counter() - begun
