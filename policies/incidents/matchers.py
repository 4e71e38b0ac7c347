"""Matchers: which firings a silence, a channel or an inhibition is about.

A matcher is written as in Alertmanager, field, operator and value, such as ``rule="rack-power"`` or
``label.team=~"ml|infra"``. All matchers of a list have to match. Regular expressions match the
whole value. They run on RE2, whose time grows with the length of the text alone: no pattern that
anybody writes can hold up the loop.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from policies.firings import Severity
from policies.scopes import Scope

__all__ = ["BadMatcher", "Matcher", "Operator", "Subject", "Subjects", "parse", "parse_matchers"]

Bools: TypeAlias = NDArray[np.bool_]

#: The most matchers in a list, and characters of a value.
MAX_MATCHERS = 20
MAX_VALUE = 200
_LABEL = "label."


class BadMatcher(ValueError):
    """The text cannot be read as a matcher. The message says why."""


class Operator(enum.StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LIKE = "=~"
    NOT_LIKE = "!~"


@dataclass(frozen=True)
class Subject:
    """The fields of a firing that matchers, inhibitions and silences look at."""

    #: tells it from all other firings
    key: str
    rule: str
    severity: Severity
    scope: Scope
    #: name of the site that the scope is in; "" where that is not known
    site: str
    labels: Mapping[str, str]


#: The fields that a matcher may name, beside ``label.NAME``.
FIELDS: dict[str, Callable[[Subject], str]] = {
    "rule": lambda subject: subject.rule,
    "severity": lambda subject: subject.severity.value,
    "scope": lambda subject: subject.scope.name,
    "scope_kind": lambda subject: subject.scope.kind.value,
    "site": lambda subject: subject.site,
}


class Subjects:
    """Subjects as columns, each made when a matcher first asks for it."""

    def __init__(self, rows: Sequence[Subject]) -> None:
        self.rows = rows
        self._columns: dict[str, NDArray[np.object_]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[np.object_]:
        """Return the texts of one field; "" where a label is missing."""
        if name not in self._columns:
            self._columns[name] = np.array(list(self._texts(name)), dtype=np.object_)
        return self._columns[name]

    def _texts(self, name: str) -> Iterable[str]:
        if name.startswith(_LABEL):
            label = name.removeprefix(_LABEL)
            return (row.labels.get(label, "") for row in self.rows)
        return map(FIELDS[name], self.rows)

    def matching(self, matchers: Iterable[Matcher]) -> Bools:
        """Say of each subject whether all of ``matchers`` match it."""
        found = np.ones(len(self), dtype=bool)
        for matcher in matchers:
            if not found.any():
                break
            found &= matcher.over(self.column(matcher.field))
        return found


@dataclass(frozen=True)
class Matcher:
    field: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        return f'{self.field}{self.operator}"{self.value}"'

    def over(self, texts: NDArray[np.object_]) -> Bools:
        """Say of each of ``texts`` whether it matches."""
        if self.operator in (Operator.EQUAL, Operator.NOT_EQUAL):
            found = np.asarray(texts == self.value, dtype=bool)
        else:
            found = _matches(self.value, texts)
        return ~found if self.operator in (Operator.NOT_EQUAL, Operator.NOT_LIKE) else found


def _matches(pattern: str, texts: NDArray[np.object_]) -> Bools:
    found = pc.match_substring_regex(pa.array(texts, pa.string()), rf"\A(?:{pattern})\z")
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


_SHAPE = re.compile(r"\s*([A-Za-z_][\w.\-/]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)


@lru_cache(maxsize=1024)
def parse(text: str) -> Matcher:
    """Return the matcher that ``text`` writes. Raises :class:`BadMatcher`."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise BadMatcher(f'{text[:60]!r} is no matcher: write one as field="value" or field=~"a|b"')
    name, operator, value = shape.groups()
    if name not in FIELDS and not (name.startswith(_LABEL) and len(name) > len(_LABEL)):
        known = ", ".join([*FIELDS, "label.NAME"])
        raise BadMatcher(f"{name!r} is no field of a firing: one of {known}")
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    if len(value) > MAX_VALUE:
        raise BadMatcher(f"the value of {name} is longer than {MAX_VALUE} characters")
    matcher = Matcher(name, Operator(operator), value)
    _check(matcher)
    return matcher


def _check(matcher: Matcher) -> None:
    if matcher.operator not in (Operator.LIKE, Operator.NOT_LIKE):
        return
    try:
        # By itself first: between our brackets an unbalanced one would go unseen.
        pc.match_substring_regex(pa.array([""], pa.string()), matcher.value)
        _matches(matcher.value, np.array([""], dtype=np.object_))
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        said = str(error).removeprefix("Invalid regular expression: ")
        raise BadMatcher(
            f"{matcher.field}: {matcher.value!r} is no regular expression that RE2 takes: {said}"
        ) from None


def parse_matchers(value: object) -> tuple[Matcher, ...]:
    """Return the matchers of a list of texts. Raises :class:`BadMatcher`."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadMatcher('give a list of matchers, such as ["rule=\\"rack-power\\""]')
    if len(value) > MAX_MATCHERS:
        raise BadMatcher(f"more than {MAX_MATCHERS} matchers")
    return tuple(parse(each) for each in value)
