"""Service level objectives: the YAML format, its meaning, and its faults.

:func:`read` is the only way in. It finds every fault that it can, each with line, column and a way
out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from admission.slos.facts import FACTS
from headroom import documents
from headroom.contracts import FieldError
from headroom.documents import Document, DocumentError
from policies.rules import cel, durations
from policies.rules.cel import CelError, Condition

__all__ = ["Measure", "Objective", "read", "schema"]

_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2000)]
_Word: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
_Duration: TypeAlias = str | int | float

NAME = r"^[a-z][a-z0-9-]{0,99}$"
#: What ``within`` may say instead of a length of time.
CHECKPOINT_INTERVAL = "checkpoint_interval"
LEAST_WINDOW_S = 86_400.0
#: Conditions and jobs of the past are looked at no further back.
LONGEST_WINDOW_S = 30 * 86_400.0
LONGEST_WITHIN_S = 7 * 86_400.0


class Measure(enum.StrEnum):
    """What an objective measures: a span of time, or the work that is at stake at each moment."""

    #: from the moment that a phase may begin until its first attempt runs
    START = "start"
    #: from the end of an attempt that was cut short until the next one runs
    RESUME = "resume"
    #: the same, of those that resume at another site
    CROSS_SITE_RESUME = "cross_site_resume"
    #: of a phase that runs: the work that would be lost if it resumed at another site now
    CROSS_SITE_LOSS = "cross_site_loss"


_DOES = {
    Measure.START: "begin",
    Measure.RESUME: "resume",
    Measure.CROSS_SITE_RESUME: "resume at another site",
}


# --- As written ----------------------------------------------------------------------------------


class _Select(Struct, forbid_unknown_fields=True):
    classes: Annotated[list[_Word], Meta(max_length=50)] = []
    projects: Annotated[list[_Word], Meta(max_length=200)] = []


class _Document(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=NAME)]
    measure: Measure
    target: Annotated[float, Meta(gt=0, lt=1)]
    within: _Duration
    description: Annotated[str, Meta(max_length=4000)] = ""
    select: _Select = msgspec.field(default_factory=_Select)
    when: Annotated[str, Meta(max_length=2000)] = ""
    window: _Duration = "7d"


def schema() -> dict[str, Any]:
    """Return the JSON schema of an objective's document."""
    return msgspec.json.schema(_Document)


# --- As used -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Objective:
    """An objective, checked and compiled."""

    name: str
    description: str
    measure: Measure
    #: the share of events that are to be good
    target: float
    #: None: within the checkpoint interval of each
    within_s: float | None
    classes: frozenset[str]
    projects: frozenset[str]
    #: time counts only while it holds; None: always
    when: Condition | None
    window_s: float

    @property
    def sentence(self) -> str:
        """Its promise, in words."""
        share = f"{_percent(self.target)} of"
        within = "one checkpoint interval" if self.within_s is None else spelled(self.within_s)
        when = f" while {' '.join(self.when.expression.split())}" if self.when else ""
        if self.measure is Measure.CROSS_SITE_LOSS:
            would = f"would lose at most {within} by a resume at another site"
            return f"{share} the time{when}, {self._whose} {would}."
        return f"{share} {self._whose} {_DOES[self.measure]} within {within}{when}."

    @property
    def _whose(self) -> str:
        parts = ["jobs"]
        if self.classes:
            parts.append(f"of class {' or '.join(sorted(self.classes))}")
        if self.projects:
            parts.append(f"of project {' or '.join(sorted(self.projects))}")
        return " ".join(parts)


def spelled(seconds: float) -> str:
    """Return a length of time in its largest whole units, such as "1 h 30 min"."""
    parts = []
    left = seconds
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count:.0f} {unit}")
    if left or not parts:
        parts.append(f"{left:g} s")
    return " ".join(parts)


def _percent(share: float) -> str:
    return f"{share * 100:.6g} %"


# --- Reading -------------------------------------------------------------------------------------


def read(text: str) -> Objective:
    """Read, check and compile an objective. Raises :class:`DocumentError` with all faults found."""
    document = documents.read(text)
    return _Reader(document, document.converted(_Document, "docs/reference/slos.md")).objective()


class _Reader:
    """Turns a document into an objective, and gathers its faults on the way."""

    def __init__(self, document: Document, given: _Document) -> None:
        self._document = document
        self._given = given
        self._problems: list[FieldError] = []

    def objective(self) -> Objective:
        given = self._given
        within_s = self._within()
        when = self._compiled("when", given.when, FACTS) if given.when else None
        window_s = self._seconds("window", given.window, LEAST_WINDOW_S, LONGEST_WINDOW_S)
        if self._problems:
            raise DocumentError(self._problems)
        return Objective(
            name=given.name,
            description=given.description.strip(),
            measure=given.measure,
            target=given.target,
            within_s=within_s,
            classes=frozenset(given.select.classes),
            projects=frozenset(given.select.projects),
            when=when,
            window_s=window_s,
        )

    def _within(self) -> float | None:
        given = self._given
        if given.within != CHECKPOINT_INTERVAL:
            return self._seconds("within", given.within, 1.0, LONGEST_WITHIN_S)
        if given.measure is Measure.START:
            self._fault(
                "within",
                "a job that has yet to begin has no checkpoint to go by",
                "give a length of time, such as 12m",
            )
        return None

    def _seconds(self, path: str, given: _Duration, least: float, most: float) -> float:
        try:
            found = durations.seconds(given)
        except ValueError as error:
            self._fault(path, str(error))
            return least
        if not least <= found <= most:
            self._fault(path, f"{given} is not from {spelled(least)} to {spelled(most)}")
        return found

    def _compiled(
        self, path: str, expression: str, fields: Mapping[str, cel.Typed]
    ) -> Condition | None:
        try:
            return cel.compile(expression, fields)
        except CelError as error:
            self._problems += self._document.faults_inside(path, expression, error.problems)
            return None

    def _fault(self, path: str, message: str, hint: str = "") -> None:
        self._problems.append(self._document.fault(path, message, hint))
