"""Declared inputs of a start: into each manifest, and held against the one that is resumed from.

They come from the file that ``HEADROOM_INPUTS`` names. Beside it :func:`note_resumed` writes down
what was resumed from, so that whichever process of the job saves next finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from headroom.checkpoints.errors import NotTaken
from headroom.checkpoints.manifest import About, Change, Name
from headroom.errors import HeadroomError
from headroom.work.inputs import VARIABLE
from headroom.work.reading import write_plain

__all__ = ["InputsDiffer", "changes_since", "note_resumed", "with_inputs"]

_VERIFIED = "verified"
_DATA = "data/"

T = TypeVar("T", bound=Struct)


class InputsDiffer(HeadroomError):
    """The checkpoint was made from other inputs than those of today: ``changes``."""

    def __init__(self, message: str, changes: list[Change]) -> None:
        super().__init__(message)
        self.changes = changes


class _Input(Struct, frozen=True):
    """One input: what was declared, and whether that was verified on the machine, or why not."""

    name: str
    digest: str
    is_verified: bool = False
    why: str = ""

    @property
    def said(self) -> str:
        return _VERIFIED if self.is_verified else f"not verified: {self.why}"


class _Declared(Struct, frozen=True):
    inputs: list[_Input] = []


class _Resumed(Struct, frozen=True):
    """What this start was resumed from, and all changes of inputs that were allowed up to now."""

    parent: str = ""
    changes: list[Change] = []


def with_inputs(about: About, environment: Mapping[str, str]) -> About:
    """Return ``about`` with what was declared for this start, and what it was resumed from.

    What was declared stands; the loop adds what was not. Raises :class:`NotTaken` where the file
    with it cannot be read.
    """
    file = _file(environment)
    if file is None:
        return about
    found = _read(file, _Declared).inputs
    digests = {each.name: each.digest for each in found}
    data = {name: digest for name, digest in digests.items() if name.startswith(_DATA)}
    resumed = _resumed(file, about.run)
    return msgspec.structs.replace(
        about,
        inputs={each.name: each.said for each in found},
        code_revision=digests.get("code", about.code_revision),
        image_digest=digests.get("image", about.image_digest),
        data={**about.data, **{name.removeprefix(_DATA): each for name, each in data.items()}},
        parent=about.parent or resumed.parent,
        changes=about.changes or resumed.changes,
    )


def changes_since(
    name: Name, about: About, environment: Mapping[str, str], allow: Collection[str] = ()
) -> list[Change]:
    """Return the inputs, all of them in ``allow``, that are others now than for the checkpoint.

    Raises :class:`InputsDiffer` where others differ, and :class:`NotTaken` as for
    :func:`with_inputs`. Without declared inputs now there is nothing to compare.
    """
    file = _file(environment)
    if file is None:
        return []
    now = {each.name: each.digest for each in _read(file, _Declared).inputs}
    before = _digests(about)
    # Where the checkpoint's start declared none, nobody knows what the loop has left out.
    names = now.keys() | about.inputs.keys() if about.inputs else now.keys() & before.keys()
    found = [
        Change(each, before.get(each, ""), now.get(each, ""), about.step, name.digest)
        for each in sorted(names)
        if before.get(each, "") != now.get(each, "")
    ]
    if refused := [each for each in found if each.input not in allow]:
        raise InputsDiffer(_said(name, refused), refused)
    return found


def note_resumed(
    name: Name, about: About, changes: list[Change], environment: Mapping[str, str]
) -> None:
    """Write down for the next manifests of the run what this start was resumed from."""
    file = _file(environment)
    if file is not None:
        known = _Resumed(name.digest, [*about.changes, *changes])
        write_plain(_resumed_path(file, name.run), msgspec.json.encode(known), 0o644)


def _digests(about: About) -> dict[str, str]:
    """Return the inputs that are known of a checkpoint, by name."""
    image = about.image_digest.rpartition("@")[2]
    found = {"code": about.code_revision, "image": image}
    found |= {f"{_DATA}{name}": digest for name, digest in about.data.items()}
    return {name: digest for name, digest in found.items() if digest}


def _said(name: Name, refused: list[Change]) -> str:
    parts = [
        f"{each.input} was {each.before or 'not declared'} and is {each.after or 'not declared'}"
        for each in refused
    ]
    names = ", ".join(each.input for each in refused)
    return (
        f"{name.said} was made from other inputs: {'; '.join(parts)}. Put back what it was, or "
        f"allow it by name: {names}"
    )


def _file(environment: Mapping[str, str]) -> Path | None:
    path = environment.get(VARIABLE)
    return Path(path) if path else None


def _resumed_path(file: Path, run: str) -> Path:
    return file.with_name(f".headroom-resumed-{run}.json")


def _resumed(file: Path, run: str) -> _Resumed:
    path = _resumed_path(file, run)
    return _read(path, _Resumed) if path.exists() else _Resumed()


def _read(path: Path, form: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotTaken(
            f"{VARIABLE} is set, and what was declared cannot be read: {path}: {error}"
        ) from error
