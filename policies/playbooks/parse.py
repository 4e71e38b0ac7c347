"""Playbook text to a program. Every fault in it is reported with line and column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from headroom import documents
from headroom.contracts import FieldError
from headroom.documents import Document, DocumentError, fault
from policies.headroom.columns import FIELDS, Field
from policies.playbooks import document
from policies.playbooks.document import (
    Approve,
    Branch,
    Manual,
    Notify,
    Playbook,
    Program,
    Related,
    Restrict,
    Step,
    Undo,
    WaitUntil,
    Webhook,
)
from policies.restrictions.kinds import KINDS
from policies.rules import cel, words
from policies.rules.errors import CelError
from policies.scopes import ScopeKind

#: The most steps of a playbook, those of all branches together.
MOST_STEPS = 100
#: Branches within branches.
_DEEPEST = 4

#: Of which kinds of scope there is a rack, zone or site.
RELATIVES: dict[Related, frozenset[ScopeKind]] = {
    Related.SELF: frozenset(ScopeKind),
    Related.RACK: frozenset({ScopeKind.RACK, ScopeKind.NODE, ScopeKind.GPU}),
    Related.ZONE: frozenset({ScopeKind.ZONE, ScopeKind.RACK, ScopeKind.NODE, ScopeKind.GPU}),
    Related.SITE: frozenset(ScopeKind) - {ScopeKind.CLASS, ScopeKind.JOB},
}
#: What texts may name besides the fields of the run's scope and the inputs.
ALWAYS = (
    "scope", "site", "playbook", "incident", "started_by", "rollout", "rollout_version",
)  # fmt: skip
#: What values may name of a place, besides its columns: sums over all that is in it.
PLACE: dict[str, Field] = {
    "scope_gpus": Field("double", "", "GPUs in the scope"),
    "scope_gpu_w": Field("double", "W", "What these GPUs draw, all together"),
    "scope_load_w": Field("double", "W", "What their nodes draw, all together"),
    "scope_rated_w": Field("double", "W", "The highest rating of one GPU in it"),
    "scope_max_mhz": Field("double", "MHz", "The highest clock of the SMs of one GPU in it"),
    "scope_least_cap_w": Field("double", "W", "The lowest cap that all GPUs in it can take"),
}
PLACES = frozenset(
    {
        ScopeKind.SITE,
        ScopeKind.ZONE,
        ScopeKind.POWER_DOMAIN,
        ScopeKind.RACK,
        ScopeKind.NODE,
        ScopeKind.GPU,
    }
)


@lru_cache(maxsize=256)
def parse(text: str) -> Program:
    """Return the program of a playbook. Raises :class:`DocumentError`.

    What it restricts is checked by kind; whether there is such a scope shows when it is run.
    """
    written = documents.read(text)
    playbook = written.converted(
        Playbook, "docs/reference/playbooks.md", dec_hook=document.read_duration
    )
    problems = [written.placed(each) for each in _problems(playbook, written)]
    if problems:
        raise DocumentError(problems)
    return document.program_of(playbook)


def fields_of(playbook: Playbook, kind: ScopeKind) -> Mapping[str, Field]:
    """Return the fields for conditions on a scope of ``kind``: its columns, and the inputs."""
    inputs = {name: Field("double", each.unit, each.help) for name, each in playbook.inputs.items()}
    return {**FIELDS.get(kind, {}), **inputs}


def value_fields(playbook: Playbook, kind: ScopeKind) -> Mapping[str, Field]:
    """Return the fields for the value of a restriction: those, and sums over a place."""
    return {**fields_of(playbook, kind), **(PLACE if kind in PLACES else {})}


def related_kind(kind: ScopeKind, related: Related) -> ScopeKind:
    """Return the kind of a scope that is ``related`` to one of ``kind``."""
    return kind if related is Related.SELF else ScopeKind(related.value)


@dataclass(frozen=True)
class _Checks:
    """The playbook under check, its document, and the ids of its steps."""

    playbook: Playbook
    written: Document
    ids: dict[str, int]


def _problems(playbook: Playbook, written: Document) -> Iterator[FieldError]:
    yield from _input_problems(playbook)
    steps = list(document.walk(playbook.steps))
    if len(steps) > MOST_STEPS:
        yield fault(f"{len(steps)} steps; at most {MOST_STEPS} are taken", field="steps")
        return
    ids: dict[str, int] = {}
    for place, (path, step) in enumerate(steps):
        field = _field(path)
        if step.id in ids:
            yield fault(f"two steps are called {step.id}", field=f"{field}.id")
        ids.setdefault(step.id, place)
        if path.count(".") > 2 * _DEEPEST:
            yield fault(f"branches are more than {_DEEPEST} deep", field=field)
    checks = _Checks(playbook, written, ids)
    for place, (path, step) in enumerate(steps):
        yield from _step_problems(checks, step, _field(path), place)


def _field(path: str) -> str:
    """Return the path of a step in the document: ``2.then.0`` is ``steps[2].branch.then[0]``."""
    first, *rest = path.split(".")
    inner = zip(rest[::2], rest[1::2], strict=True)
    return f"steps[{first}]" + "".join(f".branch.{way}[{index}]" for way, index in inner)


def _input_problems(playbook: Playbook) -> Iterator[FieldError]:
    taken = {*ALWAYS, *PLACE, *(name for kind in playbook.scopes for name in FIELDS.get(kind, {}))}
    for name, each in playbook.inputs.items():
        field = f"inputs.{name}"
        if name in taken:
            yield fault(f"{name} is a field of the scope already", field=field)
        try:
            check_input(name, each, each.default)
        except ValueError as error:
            yield fault(str(error), field=f"{field}.default")


def check_input(name: str, given: document.Input, value: float) -> None:
    """Raise ValueError where ``value`` is no number, or out of bounds."""
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}: give a number")
    low, high = given.min, given.max
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        bounds = " and ".join(
            f"{word} {bound:g}"
            for word, bound in (("at least", low), ("at most", high))
            if bound is not None
        )
        raise ValueError(f"{name} is {value:g}: give {bounds} {given.unit}".rstrip())


def _step_problems(checks: _Checks, step: Step, field: str, place: int) -> Iterator[FieldError]:
    named = document.actions_of(step)
    if len(named) != 1:
        yield _one_action(named, field)
        return
    ((kind, action),) = named.items()
    yield from _waiting_problems(step, kind, action, field)
    inner = f"{field}.{kind}"
    yield from _action_problems(checks, action, inner)
    if isinstance(action, Restrict):
        yield from _until_problems(checks, action, inner, place)
    if isinstance(step.undo, Undo):
        undoing = document.actions_of(step.undo)
        if len(undoing) != 1:
            yield _one_action(undoing, f"{field}.undo")
            return
        ((undo_kind, undo),) = undoing.items()
        yield from _action_problems(checks, undo, f"{field}.undo.{undo_kind}")


def _one_action(named: Mapping[str, object], field: str) -> FieldError:
    said = f"it has {' and '.join(named)}" if named else "it has none"
    return fault(
        f"a step has exactly one action: {said}",
        field=field,
        hint=f"give one of {', '.join(document.KINDS)}",
    )


def _waiting_problems(step: Step, kind: str, action: object, field: str) -> Iterator[FieldError]:
    """Yield faults in timeouts and undos: only a step that waits, or acts, may have them."""
    waits = kind in document.DEFAULT_TIMEOUT_S and not (
        isinstance(action, WaitUntil) and not action.condition
    )
    if step.timeout is not None and not waits:
        yield fault("this step waits for nothing that could fail to come", field=f"{field}.timeout")
    if step.timeout is not None and step.timeout <= 0:
        yield fault("give a time above 0s", field=f"{field}.timeout")
    if step.on_timeout is not None and (not waits or kind == "approve"):
        hint = "an approval says on_silence" if kind == "approve" else "leave it out"
        yield fault("this step has no timeout", field=f"{field}.on_timeout", hint=hint)
    if step.undo is not None and kind in ("approve", "wait_until", "branch"):
        yield fault(f"{kind} changes nothing that could be taken back", field=f"{field}.undo")


def _action_problems(checks: _Checks, action: object, field: str) -> Iterator[FieldError]:
    related = getattr(action, "scope", Related.SELF)
    for kind in checks.playbook.scopes:
        if kind not in RELATIVES[related]:
            message = f"a {kind} has no {related}, and this playbook may be run on one"
            yield fault(message, field=f"{field}.scope")
            return
    if isinstance(action, Restrict):
        yield from _restrict_problems(checks, action, field)
    elif isinstance(action, WaitUntil):
        yield from _wait_problems(checks, action, field)
    elif isinstance(action, Branch):
        yield from _cel_problems(checks, action.when, f"{field}.when", Related.SELF)
    elif isinstance(action, Approve):
        yield from _approve_problems(action, field)
    yield from _text_problems(checks, action, field)


def _restrict_problems(checks: _Checks, action: Restrict, field: str) -> Iterator[FieldError]:
    known = KINDS[action.kind]
    for kind in checks.playbook.scopes:
        restricted = related_kind(kind, action.scope)
        if restricted not in known.scopes:
            allowed = ", ".join(sorted(known.scopes))
            message = f"{action.kind} cannot be on a {restricted}"
            yield fault(message, field=f"{field}.scope", hint=f"it can be on: {allowed}")
    if known.takes_value != (action.value is not None):
        said = f"needs a value in {known.unit}" if known.takes_value else "takes no value"
        yield fault(f"{action.kind} {said}", field=f"{field}.value")
    elif isinstance(action.value, str):
        yield from _cel_problems(checks, action.value, f"{field}.value", Related.SELF, number=True)
    elif action.value is not None and not known.least <= action.value <= known.most:
        message = f"{action.value:g} is not within {known.least:g} and {known.most:g} {known.unit}"
        yield fault(message, field=f"{field}.value")
    if action.lease < 60:
        message = "a lease is at least 60s: it is renewed at half of its time"
        yield fault(message, field=f"{field}.lease")


def _until_problems(
    checks: _Checks, action: Restrict, field: str, place: int
) -> Iterator[FieldError]:
    if action.until in ("run", "cause"):
        return
    if checks.ids.get(action.until, -1) <= place:
        yield fault(
            f"no later step is called {action.until}",
            field=f"{field}.until",
            hint="give run, cause, or the id of a step that comes after this one",
        )


def _wait_problems(checks: _Checks, action: WaitUntil, field: str) -> Iterator[FieldError]:
    if not action.condition:
        if action.for_ <= 0:
            yield fault("it waits for nothing: give a condition, or for", field=field)
        return
    yield from _cel_problems(checks, action.condition, f"{field}.condition", action.scope)


def _approve_problems(action: Approve, field: str) -> Iterator[FieldError]:
    if (action.on_silence == "escalate") != (action.escalate is not None):
        message = "on_silence: escalate and escalate: {…} belong together"
        yield fault(message, field=f"{field}.on_silence")


def _cel_problems(
    checks: _Checks, expression: str, field: str, related: Related, *, number: bool = False
) -> Iterator[FieldError]:
    """Check an expression on every kind of scope that the playbook may be run on."""
    for kind in checks.playbook.scopes:
        try:
            if number:
                cel.compile_quantity(expression, value_fields(checks.playbook, kind))
            else:
                cel.compile(expression, fields_of(checks.playbook, related_kind(kind, related)))
        except CelError as error:
            yield from checks.written.faults_inside(field, expression, error.problems)
            return


def _text_problems(checks: _Checks, action: object, field: str) -> Iterator[FieldError]:
    """Check that the placeholders in texts are known fields of every scope."""
    known = set(ALWAYS) | set(checks.playbook.inputs)
    common = [set(FIELDS.get(kind, {})) for kind in checks.playbook.scopes]
    known |= set.intersection(*common)
    for name in _texts_of(action):
        for each in words.placeholders(getattr(action, name)):
            if each.field not in known:
                message = f"{{{each.field}}} is not known of every scope of this playbook"
                hint = "write {{ and }} for braces"
                yield fault(message, field=f"{field}.{name}", hint=hint)


def _texts_of(action: object) -> tuple[str, ...]:
    if isinstance(action, Notify | Webhook):
        return ("subject", "body")
    if isinstance(action, Approve):
        return ("question",)
    if isinstance(action, Manual):
        return ("instruction",)
    return ("reason",) if isinstance(action, Restrict) else ()
