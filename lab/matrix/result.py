"""The result of a matrix: cells with verdicts, checks, measures and series, and the grade. Pure.

The same document for runs of the twin and of real commands. It is written as JSON
(:func:`dumps`, :func:`loads`) and shown by :mod:`lab.matrix.report`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import SupportsFloat

import msgspec
from msgspec import Struct

from headroom.errors import HeadroomError

__all__ = [
    "FORMAT",
    "Better",
    "Cell",
    "Check",
    "Grade",
    "MatrixResult",
    "Measure",
    "Part",
    "ResultError",
    "Series",
    "Span",
    "SubjectKind",
    "Verdict",
    "dumps",
    "grade_of",
    "loads",
    "make_result",
    "verdict_of",
    "verdict_of_checks",
    "why_of_checks",
]

#: Changes when a reader of the old one would misunderstand the new one.
FORMAT = 1


class ResultError(HeadroomError):
    """The file is not the result of a matrix."""


class Verdict(enum.StrEnum):
    """How a check or a cell ended."""

    PASSED = "passed"
    FAILED = "failed"
    #: it could not be tried: this says nothing, and never counts as passed
    NOT_RUN = "not_run"
    #: it was run, and what is expected could not be seen: this never counts as passed, either
    NOT_MEASURED = "not_measured"
    #: the run itself broke, so that nothing can be said of the subject
    ERROR = "error"


class SubjectKind(enum.StrEnum):
    """The kind of subject under test."""

    POLICY = "policy"
    COMMAND = "command"


class Better(enum.StrEnum):
    """Which way a measure is to go. Without a way, a change of it is neither good nor bad."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class Measure(Struct, frozen=True, kw_only=True):
    """One number of a run. ``value`` is None where it could not be measured; ``said`` tells why."""

    name: str
    value: float | None
    unit: str = ""
    said: str = ""
    better: Better = Better.NEITHER


class Check(Struct, frozen=True, kw_only=True):
    """One expectation: ``text`` is the condition, ``said`` the value seen, in numbers."""

    text: str
    verdict: Verdict
    said: str = ""


class Series(Struct, frozen=True, kw_only=True):
    """A line of a plot. ``t_s`` counts from the start of the run; a gap's value is None.

    ``budget`` is what the values are to stay under; ``budget_said`` names it. Series that give the
    same ``plot`` are drawn together.
    """

    name: str
    unit: str
    t_s: list[float]
    values: list[float | None]
    plot: str = ""
    budget: float | None = None
    budget_said: str = ""


class Span(Struct, frozen=True, kw_only=True):
    """The time in which a fault acted, in seconds of the run, and its description."""

    name: str
    from_s: float
    to_s: float
    said: str = ""


class Part(Struct, frozen=True, kw_only=True):
    """Where a part of a run's time went, s, and how much went there without faults."""

    name: str
    took_s: float
    usual_s: float

    @property
    def more_s(self) -> float:
        return self.took_s - self.usual_s


class Cell(Struct, frozen=True, kw_only=True):
    """One run: a scenario with a seed. ``why`` says a verdict other than passed in one sentence."""

    scenario: str
    title: str
    seed: int
    verdict: Verdict
    why: str = ""
    #: what the scenario is for, and what good looks like
    about: str = ""
    checks: list[Check] = []
    measures: list[Measure] = []
    #: why it took longer than without faults, and why work was lost, in sentences
    cause: str = ""
    #: where its time went: they add up to it
    parts: list[Part] = []
    series: list[Series] = []
    #: the faults
    spans: list[Span] = []
    #: the last lines of what the run wrote, and what happened in it
    log: str = ""
    #: what tells two runs apart: the same seed has to give the same one
    digest: str = ""
    #: how long the run is, and how long it took here
    simulated_s: float = 0.0
    wall_s: float = 0.0
    #: the command line that runs this cell alone
    again: str = ""


class Grade(Struct, frozen=True, kw_only=True):
    """The grade of a subject: a letter, the counts behind it, and a sentence."""

    letter: str
    passed: int
    failed: int
    errors: int
    not_run: int
    said: str
    not_measured: int = 0


class MatrixResult(Struct, frozen=True, kw_only=True):
    """The result of a matrix: its cells, their grade, and the circumstances of the run."""

    subject: str
    kind: SubjectKind
    #: when it ended, ISO 8601, UTC
    at: str
    cells: list[Cell]
    grade: Grade
    #: facts about where and with what it was run, by name
    machine: dict[str, str] = {}
    versions: dict[str, str] = {}
    format: int = FORMAT

    @property
    def verdict(self) -> Verdict:
        return verdict_of(cell.verdict for cell in self.cells)

    @property
    def scenarios(self) -> list[str]:
        """The names of the scenarios, in the order in which they were run."""
        return list(dict.fromkeys(cell.scenario for cell in self.cells))

    @property
    def seeds(self) -> list[int]:
        return sorted({cell.seed for cell in self.cells})


def make_result(
    *,
    subject: str,
    kind: SubjectKind,
    at: str,
    cells: Sequence[Cell],
    machine: dict[str, str] | None = None,
    versions: dict[str, str] | None = None,
) -> MatrixResult:
    """Return the result of ``cells`` with its grade."""
    return MatrixResult(
        subject=subject,
        kind=kind,
        at=at,
        cells=list(cells),
        grade=grade_of([cell.verdict for cell in cells]),
        machine=machine or {},
        versions=versions or {},
    )


def verdict_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of several: the worst of those that were run.

    Errors come before failures: what could not be judged is mended first. All of several have
    passed only where all of them were measured. Nothing that was not run makes anything pass.
    """
    found = set(verdicts)
    for verdict in (Verdict.ERROR, Verdict.FAILED, Verdict.NOT_MEASURED, Verdict.PASSED):
        if verdict in found:
            return verdict
    return Verdict.NOT_RUN


def verdict_of_checks(checks: Iterable[Check]) -> Verdict:
    """Return the verdict of a cell by its checks."""
    return verdict_of(check.verdict for check in checks)


def why_of_checks(checks: Iterable[Check]) -> str:
    """Return why a cell did not pass by its checks, the first one in full; "" where it passed."""
    checks = list(checks)
    worst = verdict_of_checks(checks)
    if worst == Verdict.PASSED or not checks:
        return ""
    first, *others = (check for check in checks if check.verdict == worst)
    why = f"{first.text}: {first.said}" if first.said else first.text
    if worst == Verdict.NOT_MEASURED:
        why = f"it could not be seen whether {why}"
    return f"{why} (and {len(others)} more)" if others else why


#: The least share of passed cells, of those that were judged, for each letter.
_LETTERS = (("A", 1.0), ("B", 0.9), ("C", 0.75), ("D", 0.5), ("F", 0.0))
_NO_LETTER = "none"


def grade_of(verdicts: Sequence[Verdict]) -> Grade:
    """Return the grade of a subject by its cells.

    A: all passed. B: at least 90 % of those that were judged, C: 75 %, D: 50 %, F: fewer. A cell
    that could not be run or not be measured was not judged. A grade speaks of what was judged, so
    it is no better than B where a cell was not, and no better than C where most were not. With
    nothing judged there is none.
    """
    count = {each: sum(verdict == each for verdict in verdicts) for each in Verdict}
    unjudged = count[Verdict.NOT_RUN] + count[Verdict.NOT_MEASURED]
    judged = len(verdicts) - unjudged
    return Grade(
        letter=_letter(count[Verdict.PASSED], judged=judged, unjudged=unjudged),
        passed=count[Verdict.PASSED],
        failed=count[Verdict.FAILED],
        errors=count[Verdict.ERROR],
        not_run=count[Verdict.NOT_RUN],
        not_measured=count[Verdict.NOT_MEASURED],
        said=_grade_said(count, judged),
    )


def _letter(passed: int, *, judged: int, unjudged: int) -> str:
    if not judged:
        return _NO_LETTER
    by_share = next(letter for letter, least in _LETTERS if passed >= least * judged)
    best = "A" if not unjudged else "B" if unjudged <= judged else "C"
    # Letters worsen with the alphabet.
    return max(by_share, best)


def _grade_said(count: dict[Verdict, int], judged: int) -> str:
    if not judged and not count[Verdict.NOT_MEASURED]:
        return f"None of {count[Verdict.NOT_RUN]} cells could be run."
    if judged:
        parts = [f"{count[Verdict.PASSED]} of {judged} cells passed"]
    else:
        parts = ["No cell could be judged"]
    if count[Verdict.FAILED]:
        parts.append(f"{count[Verdict.FAILED]} failed")
    if count[Verdict.ERROR]:
        parts.append(f"{count[Verdict.ERROR]} broke")
    if count[Verdict.NOT_MEASURED]:
        parts.append(f"{count[Verdict.NOT_MEASURED]} could not be measured and count for nothing")
    if count[Verdict.NOT_RUN]:
        parts.append(f"{count[Verdict.NOT_RUN]} could not be run and count for nothing")
    return f"{', '.join(parts)}."


def dumps(result: MatrixResult) -> bytes:
    """Return the result as JSON, with an end of line."""
    return msgspec.json.encode(result, enc_hook=_plain) + b"\n"


def _plain(value: object) -> float:
    """Return numbers of other libraries, such as NumPy's, as floats."""
    if isinstance(value, SupportsFloat):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no part of a result")


def loads(text: bytes | str) -> MatrixResult:
    """Read a result. Raises :class:`ResultError` with the error and its place."""
    try:
        result = msgspec.json.decode(text, type=MatrixResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ResultError(f"not the result of a matrix: {exc}") from exc
    if result.format != FORMAT:
        raise ResultError(
            f"this result is of format {result.format}, and this version reads {FORMAT}: "
            "run the matrix again with this version"
        )
    for number, cell in enumerate(result.cells):
        for series in cell.series:
            if len(series.t_s) != len(series.values):
                raise ResultError(
                    f"cells[{number}] ({cell.scenario}): series {series.name} has "
                    f"{len(series.t_s)} times and {len(series.values)} values"
                )
    return result
