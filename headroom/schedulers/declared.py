"""Artifacts as words in the comment of a job: sections of a specification, each in one word.

``output=model,path=/shared/model,copies=bergen+oslo``: what the section calls it, then its other
fields as they are called there, with "+" between several. ``input=train/model,path=/mnt/model`` and
``promotion=evaluate/matrix`` likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from headroom.jobs.spec import ArtifactOf, Input, Output, PhaseSpec, Promotion

__all__ = ["input_of", "output_of", "promotion_of", "words_of"]

T = TypeVar("T")
#: What would end a word, a field of it or the comment, or is taken out of comments.
_ODD = re.compile(r"[\s,;+\"'\\\x00-\x1f\x7f]")


def input_of(text: str) -> Input:
    """Return the artifact that ``train/model,path=/mnt/model`` takes. Raises ValueError."""
    name, fields = _fields(text)
    return _section({**_artifact(name), **fields}, Input)


def output_of(text: str) -> Output:
    """Return the artifact that ``model,path=/shared/model`` makes. Raises ValueError."""
    name, fields = _fields(text)
    if copies := fields.pop("copies", ""):
        fields["copies"] = copies.split("+")
    if copy_of := fields.pop("copy_of", ""):
        fields["copy_of"] = _artifact(copy_of)
    return _section({"name": name, **fields}, Output)


def promotion_of(text: str) -> Promotion:
    """Return the promotion that goes by ``evaluate/matrix+check/matrix``, or by none.

    Raises ValueError.
    """
    matrices = [_artifact(each) for each in text.split("+") if each]
    return _section({"matrix": matrices}, Promotion)


def words_of(phase: PhaseSpec) -> Iterator[tuple[str, str]]:
    """Yield the words that say what a phase takes, makes and promotes, each with its value.

    Raises ValueError for a path or a site that no word can hold.
    """
    for taken in phase.inputs:
        yield "input", _joined(str(taken), {"path": taken.path or ""})
    for made in phase.outputs:
        fields = {
            "path": made.path,
            "copies": "+".join(map(_plain, made.copies)),
            "copy_of": str(made.copy_of or ""),
            "matrix": "true" if made.matrix else "",
        }
        yield "output", _joined(made.name, fields)
    if phase.promotion is not None:
        yield "promotion", "+".join(map(str, phase.promotion.matrix))


def _joined(name: str, fields: Mapping[str, str]) -> str:
    said = [f"{field}={value}" for field, value in fields.items() if value]
    if odd := _ODD.search(fields["path"]):
        raise ValueError(
            f"the path {fields['path']!r} cannot stand in a comment: it has {odd[0]!r}"
        )
    return ",".join([name, *said])


def _plain(text: str) -> str:
    if odd := _ODD.search(text):
        raise ValueError(f"the site {text!r} cannot stand in a comment: it has {odd[0]!r}")
    return text


def _fields(text: str) -> tuple[str, dict[str, Any]]:
    name, *rest = text.split(",")
    pairs = [each.partition("=") for each in rest]
    if bare := [field for field, equals, _ in pairs if not equals]:
        raise ValueError(f"has {bare[0][:40]!r}, which is no FIELD=VALUE")
    return name, {field: value for field, _, value in pairs}


def _artifact(text: str) -> dict[str, Any]:
    phase, _, output = text.partition("/")
    return msgspec.to_builtins(_section({"phase": phase, "output": output}, ArtifactOf))  # type: ignore[no-any-return]


def _section(values: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"is not as in a specification: {error}") from error
