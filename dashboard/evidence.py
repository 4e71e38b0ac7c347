"""Evidence in words: what a restriction or a reason rests on, without names and numbers of code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from policies.rules.words import named, spoken

__all__ = ["facts"]

#: The last words of names that are moments.
_MOMENTS = {"at", "from", "since", "until"}


def facts(evidence: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return evidence as pairs of a name and a value as people say it.

    ``evidence``: JSON as it is kept, with units in names (``thermal_margin_c``) and moments as
    Unix s or ISO 8601. What is nested comes one by one. Numbers without a unit stand as they are.
    """
    return list(_facts(evidence))


def _facts(evidence: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in evidence.items():
        if isinstance(value, Mapping) and not _is_scope(value):
            yield from _facts(value)
        else:
            yield _fact(name, value)


def _fact(name: str, value: object) -> tuple[str, str]:
    plain, unit = named(name)
    at = _moment(value) if name.rpartition("_")[2] in _MOMENTS else None
    return plain, _words(value, unit) if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _moment(value: object) -> datetime | None:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except ValueError:
            return None
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else None


def _is_scope(value: Mapping[str, object]) -> bool:
    return value.keys() == {"kind", "name"}


def _words(value: object, unit: str) -> str:
    if isinstance(value, Mapping):
        # A scope, or one of a list of things: its values say what it is.
        return " ".join(words for _, words in (_fact(*each) for each in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_words(each, unit) for each in value)
    return spoken(value, unit)
