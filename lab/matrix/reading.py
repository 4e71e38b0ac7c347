"""Reading a scenario from YAML.

One of two things comes of it: a checked document, or an error that names line, field and way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from headroom import documents
from headroom.contracts import FieldError
from headroom.documents import DocumentError, closest, field_names, refusal, told
from lab.matrix import scenario as words
from lab.matrix.expect import moment_of
from lab.matrix.scenario import (
    LEVELS,
    MOMENTS,
    QUANTITIES,
    Expectation,
    Fault,
    FaultKind,
    Never,
    Period,
    Recovers,
    Scenario,
    Within,
    seconds,
)

__all__ = ["MOST_BYTES", "ScenarioError", "load", "read"]

MOST_BYTES = 256 * 1024

_DOCUMENT = "see docs/reference/scenarios.md"
_FIELDS = field_names(words)
_IN_WORDS = {
    words.NAME: "small letters, digits and '-', a letter or digit first and last",
    words.SERIES: "small letters, digits and '_', a letter first",
    words.DURATION: "a length of time such as 90s, 10m or 1h30m",
    "^(start|end)$": "start or end",
}
#: Kinds that need to be told what they are on: all of it would be no fault that anyone studies.
_NAMED_TARGETS = {FaultKind.FEED_LOSS, FaultKind.POWER_BUDGET, FaultKind.SITE_ISOLATED}
_ALL_QUANTITIES = {name for needed, more in QUANTITIES.values() for name in (*needed, *more)}


class ScenarioError(DocumentError):
    """A scenario breaks the contract. ``problems`` says where and why: at least one."""

    def __init__(self, problems: list[FieldError], source: str = "") -> None:
        super().__init__(problems)
        prefix = f"{source}: " if source else ""
        self.args = ("\n".join(prefix + told(each) for each in problems),)


def load(path: Path) -> Scenario:
    """Return the scenario in a file. Raises :class:`ScenarioError`."""
    try:
        body = path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ScenarioError([_problem("unreadable", message, "")], str(path)) from error
    return read(body, source=str(path))


def read(body: bytes, *, source: str = "") -> Scenario:
    """Return the scenario that ``body`` holds as YAML. Raises :class:`ScenarioError`.

    ``source`` is what errors call it, such as the name of its file.
    """
    if len(body) > MOST_BYTES:
        problem = _problem("too_large", f"it has more than {MOST_BYTES} bytes", "make it shorter")
        raise ScenarioError([problem], source)
    try:
        document = documents.read(body.decode(), most_characters=MOST_BYTES)
    except UnicodeDecodeError as error:
        problem = _problem("malformed", "it is not UTF-8", "save it as UTF-8")
        raise ScenarioError([problem], source) from error
    except DocumentError as error:
        problems = [
            replace(each, code="malformed", hint=each.hint or _DOCUMENT) for each in error.problems
        ]
        raise ScenarioError(problems, source) from error
    found, problems = _converted(document.value)
    if found is None or problems:
        raise ScenarioError([document.placed(each) for each in problems], source)
    return found


def _converted(values: Any) -> tuple[Scenario | None, list[FieldError]]:
    try:
        found = msgspec.convert(values, Scenario)
    except msgspec.ValidationError as error:
        return None, [_refused_by_decoder(error)]
    return found, list(_problems_of(found))


def _refused_by_decoder(error: msgspec.ValidationError) -> FieldError:
    found = refusal(error, _IN_WORDS)
    hint = _hint(found.message, found.unknown)
    return _problem("invalid_field", found.message, hint, found.path)


def _hint(message: str, unknown: str) -> str:
    if unknown:
        close = closest(unknown, _FIELDS)
        return f"do you mean `{close}`?" if close else _DOCUMENT
    if message.startswith("Expected `str`, got"):
        return "write a text; a length of time has a unit, such as 90s"
    if message.startswith("Invalid enum value"):
        return _enum_hint(message)
    return _DOCUMENT


def _enum_hint(message: str) -> str:
    given = message.rpartition(" ")[2].strip("'\"")
    values = [
        str(each) for kind in (FaultKind, words.Level, words.Period, words.Runner) for each in kind
    ]
    close = closest(given, values)
    return f"do you mean {close}?" if close else _DOCUMENT


def _problem(code: str, message: str, hint: str, field: str = "") -> FieldError:
    return FieldError(code=code, message=message, field=field, hint=hint)


# --- What the types cannot see -------------------------------------------------------------------


def _problems_of(found: Scenario) -> Iterator[FieldError]:
    if found.duration_s <= found.warm_up_s:
        yield _problem(
            "too_short",
            f"the run has {found.duration} and its warm-up {found.warm_up}: nothing is judged",
            "make the duration longer",
            "duration",
        )
    for number, fault in enumerate(found.faults):
        yield from _fault_problems(fault, found, f"faults[{number}]")
    for number, expectation in enumerate(found.expect):
        yield from _expectation_problems(expectation, found, f"expect[{number}]")


def _fault_problems(fault: Fault, found: Scenario, path: str) -> Iterator[FieldError]:
    if not found.warm_up_s <= fault.at_s < found.duration_s:
        yield _problem(
            "out_of_time",
            f"begins at {fault.at}, and what is judged lasts from {found.warm_up} to"
            f" {found.duration}",
            "move it or make the duration longer",
            f"{path}.at",
        )
    if fault.lasts is not None and seconds(fault.lasts) <= 0:
        yield _problem("too_short", "it never acts", "give it some seconds", f"{path}.for")
    if fault.kind in MOMENTS and fault.lasts is not None:
        message = f"a {fault.kind} is a moment"
        yield _problem("not_for_kind", message, "leave it out", f"{path}.for")
    if fault.kind is FaultKind.PAUSE and fault.lasts is None:
        message = "the command would stand still to the end of the run"
        yield _problem("too_long", message, "say for how long", f"{path}.for")
    yield from _quantity_problems(fault, path)
    if fault.kind in _NAMED_TARGETS and not (fault.target.names or fault.target.count):
        message = f"{fault.kind} on all of the fleet is not meant"
        hint = "give target.names, such as ['*/feed-a'], or target.count"
        yield _problem("target_missing", message, hint, f"{path}.target")
    if fault.level not in LEVELS[fault.kind]:
        yield _problem(
            "not_for_kind",
            f"{fault.kind} is not on a {fault.level}",
            f"one of: {', '.join(LEVELS[fault.kind])}",
            f"{path}.target.level",
        )


def _quantity_problems(fault: Fault, path: str) -> Iterator[FieldError]:
    needed, more = QUANTITIES[fault.kind]
    default = {each.encode_name: each.default for each in msgspec.structs.fields(Fault)}
    given = [name for name in sorted(_ALL_QUANTITIES) if getattr(fault, name) != default[name]]
    for name in given:
        if name not in (*needed, *more):
            hint = f"it takes {' or '.join(needed)}" if needed else "leave it out"
            yield _problem("not_for_kind", f"{fault.kind} takes no {name}", hint, f"{path}.{name}")
    if needed and len(set(given) & set(needed)) != 1:
        yield _problem(
            "quantity_missing" if not set(given) & set(needed) else "several_quantities",
            f"{fault.kind} needs how much: exactly one of {', '.join(needed)}",
            f"such as {needed[0]}: …",
            path,
        )


def _expectation_problems(
    expectation: Expectation, found: Scenario, path: str
) -> Iterator[FieldError]:
    names = Expectation.__struct_fields__
    given = [name for name in names if getattr(expectation, name) is not None]
    if len(given) != 1:
        hint = f"one of: {', '.join(names)}"
        yield _problem("one_of", f"it has {len(given)} expectations, not one", hint, path)
        return
    what = getattr(expectation, given[0])
    path = f"{path}.{given[0]}"
    if isinstance(what, Never | Within | Recovers):
        yield from _condition_problems(what, path)
    needs_fault = isinstance(what, Within | Recovers) or (
        isinstance(what, Never) and what.during in (Period.FAULTS, Period.AFTER)
    )
    if needs_fault and not found.faults:
        message = "there is no fault that it could come after"
        yield _problem("no_fault", message, "use never or at_most, over all of the run", path)
    elif isinstance(what, Within) and (what.fault or 0) >= len(found.faults):
        message = f"there are {len(found.faults)} faults, counted from 0"
        yield _problem("no_such_fault", message, "give the place of one", f"{path}.fault")
    elif isinstance(what, Within | Recovers) and _due_s(what, found) > found.duration_s:
        message = f"the run of {found.duration} ends before that"
        yield _problem("out_of_time", message, "make the duration longer", f"{path}.time")


def _due_s(what: Within | Recovers, found: Scenario) -> float:
    """Return when the time of an expectation is over, in seconds of the run."""
    if isinstance(what, Recovers):
        return (found.last_fault_s or 0.0) + seconds(what.time)
    return moment_of(what, found) + seconds(what.time)


def _condition_problems(what: Never | Within | Recovers, path: str) -> Iterator[FieldError]:
    names = ["above", "below"] + (["share"] if isinstance(what, Recovers) else [])
    if sum(getattr(what, name) is not None for name in names) != 1:
        message = f"it needs exactly one of {', '.join(names)}"
        yield _problem("one_of", message, "such as above: 0", path)
