"""Versions of documents for their pages: next steps, differences, faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounts.models import User
from headroom.contracts import FieldError
from headroom.documents import DocumentError
from policies.documents import diff
from policies.documents.life import BadStep, Kind, Refused
from policies.documents.models import States, Version

__all__ = ["compared", "diff_lines", "percentage", "quoted", "version_row", "words"]


#: Characters of a text that an error quotes.
_QUOTED = 160


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff, and its kind: old, new, place or same."""

    text: str
    look: str


def version_row(kind: Kind[Any], row: Version, user: User) -> dict[str, Any]:
    """Return a version with the steps that ``user`` may take with it."""
    order = list(States)
    steps = [
        each.value for each in kind.steps if order.index(each) > order.index(States(row.state))
    ]
    is_over = row.state == States.RETIRED
    return {
        "version": row,
        "steps": [] if is_over else steps,
        "is_own": row.author == user.get_username(),
    }


def compared(versions: Sequence[Version], given: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the differences between the two versions that the URL names, or the newest two."""
    known = {str(each.number): each for each in versions}
    new = known.get(given.get("new", ""), versions[0] if versions else None)
    before = [each for each in versions if new and each.number < new.number]
    old = known.get(given.get("old", ""), before[0] if before else None)
    if old is None or new is None:
        return None
    text = diff.text_diff(old.text, new.text, old_name=str(old), new_name=str(new))
    return {
        "old": old,
        "new": new,
        "lines": diff_lines(text),
        "changes": _changes(old, new),
        "asked": bool(given.get("old") or given.get("new")),
    }


def _changes(old: Version, new: Version) -> list[diff.Change]:
    try:
        return diff.changes(old.text, new.text)
    except DocumentError:  # a release of ours no longer takes one of them
        return []


def percentage(text: str) -> float | None:
    """Return a percentage as a share; None where the field is empty. Raises Refused."""
    if not text.strip():
        return None
    try:
        return float(text) / 100
    except ValueError:
        raise BadStep(f"{text[:20]!r} is no percentage", "share", "above 0, below 100") from None


def words(error: Refused) -> str:
    """Return why something was refused, as a sentence."""
    return f"{error.message}: {error.hint}." if error.hint else f"{error.message}."


def diff_lines(text: str) -> list[DiffLine]:
    """Return the lines of a unified diff, without the names of the files."""
    looks = {"-": "old", "+": "new", "@": "place"}
    return [DiffLine(line, looks.get(line[:1], "same")) for line in text.splitlines()[2:]]


@dataclass(frozen=True, slots=True)
class Quoted:
    """A fault with the line that has it, and a caret below the column."""

    problem: FieldError
    line: str
    caret: str


def quoted(text: str, problems: Sequence[FieldError]) -> list[Quoted]:
    """Return faults with the lines that they are in, in the order of these."""
    lines = text.splitlines()
    found = []
    for problem in sorted(problems, key=lambda each: (each.line, each.column)):
        line = lines[problem.line - 1] if 0 < problem.line <= len(lines) else ""
        begin = max(0, problem.column - 1 - _QUOTED // 2) if len(line) > _QUOTED else 0
        shown = line[begin : begin + _QUOTED]
        caret = " " * max(0, problem.column - 1 - begin) + "^" if line else ""
        found.append(Quoted(problem, shown, caret))
    return found
