"""Errors in a document: where, which, and in whose words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import msgspec

from headroom.contracts import FieldError
from headroom.errors import HeadroomError

__all__ = [
    "INVALID",
    "DocumentError",
    "Refusal",
    "closest",
    "fault",
    "field_names",
    "refusal",
    "told",
]

#: The code of what is wrong in a document, where its kind has none of its own.
INVALID = "invalid_document"
#: The field that a message of the decoder names, besides the path.
_NAMED = re.compile(r"(unknown|required) field `(\w+)`")
_PATTERN = re.compile(r"Expected `str` matching regex (.*)")


class DocumentError(HeadroomError, ValueError):
    """A document cannot be used. ``problems`` says where and why: at least one."""

    def __init__(self, problems: list[FieldError]) -> None:
        self.problems = problems
        super().__init__("; ".join(map(told, problems)))


def fault(
    message: str,
    line: int = 0,
    column: int = 0,
    field: str = "",
    hint: str = "",
    *,
    code: str = INVALID,
) -> FieldError:
    """Return an error in a document. Lines and columns count from 1; 0 stands for none."""
    return FieldError(code=code, message=message, field=field, hint=hint, line=line, column=column)


class Refusal(NamedTuple):
    """An error of the decoder: path and message. ``unknown`` is a field that is none; or empty."""

    path: str
    message: str
    unknown: str


def refusal(error: msgspec.ValidationError, in_words: Mapping[str, str]) -> Refusal:
    """Return the error of the decoder. ``in_words`` gives patterns in plain words."""
    message, _, place = str(error).partition(" - at ")
    path = place.rpartition("$")[2].strip("`").lstrip(".")
    named = _NAMED.search(message)
    if named:
        path = f"{path}.{named[2]}".lstrip(".")
    pattern = _PATTERN.fullmatch(message)
    if pattern:
        # The decoder shows it as Python would write it.
        text = pattern[1][1:-1].replace("\\\\", "\\")
        message = f"has to be {in_words.get(text, pattern[1])}"
    return Refusal(path, message, named[2] if named and named[1] == "unknown" else "")


def told(problem: FieldError) -> str:
    """Return a problem as one line: its place, the error, and the way out."""
    at = f"line {problem.line}, column {problem.column}: " if problem.line else ""
    field = f"{problem.field}: " if problem.field else ""
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{at}{field}{problem.message}{hint}"


def field_names(module: ModuleType) -> list[str]:
    """Return the names of all fields of a module's structs, in order."""
    structs = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    return sorted({name for each in structs for name in each.__struct_encode_fields__})


def closest(given: str, known: Sequence[str]) -> str:
    """Return the known word that ``given`` was probably meant to be; empty: none."""
    return next(iter(difflib.get_close_matches(given, known, n=1)), "")
