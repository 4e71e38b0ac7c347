"""A rule as its author writes it, in YAML, and as the engine uses it.

:func:`read` checks everything that can be checked without a fleet: the shape, the conditions, the
placeholders, and that the rule has some hysteresis. Every fault is told with line and column.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from fleet.tables import COOLING_KINDS, DOMAIN_KINDS, LINK_KINDS
from headroom import documents
from headroom.contracts import FieldError
from headroom.documents import Document, DocumentError, fault
from policies.firings import Severity
from policies.headroom.columns import FIELDS
from policies.restrictions.kinds import KINDS, RestrictionKind
from policies.rules import cel, durations, hysteresis, words
from policies.rules.cel import CelError, Condition, Quantity, Typed
from policies.scopes import ScopeKind

__all__ = ["Notify", "OpenIncident", "Related", "Restrict", "Rule", "RuleScope", "Select", "read"]

_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2000)]
_Word: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
_Annotation: TypeAlias = Annotated[str, Meta(max_length=2000)]
_Duration: TypeAlias = str | int | float

#: A lease is never shorter: it is renewed while the rule fires.
LEAST_LEASE_S = 60.0
LONGEST_S = 7 * 86_400.0
NAME = r"^[a-z][a-z0-9-]{0,99}$"

#: What ``select.kinds`` may name, by what the rule is about.
SELECTABLE_KINDS: dict[ScopeKind, list[str]] = {
    ScopeKind.POWER_DOMAIN: DOMAIN_KINDS,
    ScopeKind.ZONE: COOLING_KINDS,
    ScopeKind.LINK: LINK_KINDS,
}


class RuleScope(enum.StrEnum):
    """The kinds of scopes that a rule may be about: those with columns of headroom."""

    SITE = "site"
    ZONE = "zone"
    POWER_DOMAIN = "power_domain"
    RACK = "rack"
    NODE = "node"
    GPU = "gpu"
    LINK = "link"
    STORAGE = "storage"


class Related(enum.StrEnum):
    """A scope as seen from the one that a rule fires on."""

    SELF = "self"
    #: of a GPU
    NODE = "node"
    #: of a GPU, a node or a link
    RACK = "rack"
    ZONE = "zone"
    #: of a power domain the one above; of what stands in a rack, each of its feeds
    POWER_DOMAIN = "power_domain"
    SITE = "site"
    #: of a WAN link
    PEER_SITE = "peer_site"


#: What each kind of scope is part of.
RELATED: dict[ScopeKind, frozenset[Related]] = {
    ScopeKind.SITE: frozenset({Related.SELF}),
    ScopeKind.ZONE: frozenset({Related.SELF, Related.SITE}),
    ScopeKind.POWER_DOMAIN: frozenset({Related.SELF, Related.POWER_DOMAIN, Related.SITE}),
    ScopeKind.RACK: frozenset({Related.SELF, Related.ZONE, Related.POWER_DOMAIN, Related.SITE}),
    ScopeKind.NODE: frozenset(
        {Related.SELF, Related.RACK, Related.ZONE, Related.POWER_DOMAIN, Related.SITE}
    ),
    ScopeKind.GPU: frozenset(
        {Related.SELF, Related.NODE, Related.RACK, Related.ZONE, Related.POWER_DOMAIN, Related.SITE}
    ),
    ScopeKind.LINK: frozenset({Related.SELF, Related.RACK, Related.SITE, Related.PEER_SITE}),
    ScopeKind.STORAGE: frozenset({Related.SELF, Related.SITE}),
}


# --- As written ----------------------------------------------------------------------------------


class _Select(Struct, forbid_unknown_fields=True):
    sites: Annotated[list[_Word], Meta(max_length=100)] = []
    kinds: Annotated[list[_Word], Meta(max_length=20)] = []
    labels: Annotated[dict[_Word, str], Meta(max_length=20)] = {}


class _Restrict(Struct, forbid_unknown_fields=True):
    kind: RestrictionKind
    scope: Related = Related.SELF
    value: float | _Text | None = None
    lease: _Duration = "10m"
    most_of_site: Annotated[float, Meta(ge=0, le=1)] | None = None


class _Incident(Struct, forbid_unknown_fields=True):
    playbook: Annotated[str, Meta(max_length=100)] = ""


class _Notify(Struct, forbid_unknown_fields=True):
    channels: Annotated[list[_Word], Meta(min_length=1, max_length=20)]


class _Shift(Struct, forbid_unknown_fields=True):
    share: float | _Text
    lease: _Duration = "10m"


class _Effect(Struct, forbid_unknown_fields=True):
    restrict: _Restrict | None = None
    incident: _Incident | None = None
    notify: _Notify | None = None
    shift: _Shift | None = None


class _Document(Struct, forbid_unknown_fields=True, rename={"for_": "for"}):
    name: Annotated[str, Meta(pattern=NAME)]
    scope: RuleScope
    when: _Text
    severity: Severity
    summary: Annotated[str, Meta(min_length=1, max_length=500)]
    description: Annotated[str, Meta(max_length=4000)] = ""
    select: _Select = msgspec.field(default_factory=_Select)
    for_: _Duration = 0
    clear: Annotated[str, Meta(max_length=2000)] = ""
    clear_for: _Duration = 0
    effects: Annotated[list[_Effect], Meta(max_length=20)] = []
    annotations: Annotated[dict[_Word, _Annotation], Meta(max_length=20)] = {}


def schema() -> dict[str, Any]:
    """Return the JSON schema of a rule's document."""
    return msgspec.json.schema(_Document)


# --- As used -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Select:
    """Which scopes a rule looks at. An empty part asks for nothing."""

    sites: frozenset[str]
    kinds: frozenset[str]
    labels: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Restrict:
    """Hold a restriction for as long as the rule fires."""

    kind: RestrictionKind
    scope: Related
    #: a number, an expression that gives one, or None for kinds that take none
    value: float | Quantity | None
    lease_s: float
    #: the share of a site that this may be on without a person; None: the setting's
    most_of_site: float | None = None


@dataclass(frozen=True)
class OpenIncident:
    """Open an incident, or join one, and run a playbook where one is named."""

    playbook: str


@dataclass(frozen=True)
class Notify:
    """Tell people, by the names of their channels."""

    channels: tuple[str, ...]


Effect: TypeAlias = Restrict | OpenIncident | Notify


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule, checked and compiled."""

    name: str
    description: str
    scope: ScopeKind
    select: Select
    when: Condition
    #: None: whenever ``when`` is known not to hold
    clear: Condition | None
    for_s: float
    clear_for_s: float
    severity: Severity
    summary: str
    annotations: Mapping[str, str]
    effects: tuple[Effect, ...]

    @cached_property
    def fields(self) -> frozenset[str]:
        """All fields that its conditions and values look at."""
        parts = [self.when.fields, self.clear.fields if self.clear else frozenset()]
        values = [e.value for e in self.effects if isinstance(e, Restrict)]
        parts += [value.fields for value in values if isinstance(value, Quantity)]
        return frozenset[str]().union(*parts)

    @cached_property
    def shown(self) -> list[str]:
        """The fields whose values are kept with a firing, in the order of their names."""
        texts = [self.summary, *self.annotations.values()]
        named = {p.field for text in texts for p in words.placeholders(text)}
        return sorted((self.fields | named) - {"labels", "name", "site"})

    def restricts(self) -> Iterator[tuple[int, Restrict]]:
        """Yield the restrictions with their places among the effects."""
        for place, effect in enumerate(self.effects):
            if isinstance(effect, Restrict):
                yield place, effect


# --- Reading -------------------------------------------------------------------------------------


def read(text: str) -> Rule:
    """Read, check and compile a rule. Raises :class:`DocumentError` with all faults found."""
    document = documents.read(text)
    return _Reader(document, document.converted(_Document, "docs/reference/rules.md")).rule()


class _Reader:
    """Turns a document into a rule, and gathers faults on the way."""

    def __init__(self, document: Document, given: _Document) -> None:
        self._document = document
        self._given = given
        self._kind = ScopeKind(given.scope.value)
        self._fields = FIELDS[self._kind]
        self._problems: list[FieldError] = []

    def rule(self) -> Rule:
        given = self._given
        when = self._compiled("when", given.when, cel.compile)
        clear = self._compiled("clear", given.clear, cel.compile) if given.clear else None
        for_s = self._seconds("for", given.for_)
        clear_for_s = self._seconds("clear_for", given.clear_for)
        effects = tuple(self._effects())
        self._check_select()
        self._check_texts()
        if when is not None and (clear is not None or not given.clear):
            self._check_hysteresis(when, clear, clear_for_s)
        if self._problems or when is None:
            raise DocumentError(self._problems)
        return Rule(
            name=given.name,
            description=given.description.strip(),
            scope=self._kind,
            select=Select(
                frozenset(given.select.sites),
                frozenset(given.select.kinds),
                given.select.labels,
            ),
            when=when,
            clear=clear,
            for_s=for_s,
            clear_for_s=clear_for_s,
            severity=given.severity,
            summary=given.summary.strip(),
            annotations=given.annotations,
            effects=effects,
        )

    def _fault(self, path: str, message: str, hint: str = "") -> None:
        self._problems.append(self._document.fault(path, message, hint))

    def _compiled(
        self, path: str, expression: str, compiler: Callable[[str, Mapping[str, Typed]], Any]
    ) -> Any:
        try:
            return compiler(expression, self._fields)
        except CelError as error:
            self._problems += self._document.faults_inside(path, expression, error.problems)
            return None

    def _seconds(self, path: str, given: _Duration, least: float = 0.0) -> float:
        try:
            found = durations.seconds(given)
        except ValueError as error:
            self._fault(path, str(error))
            return least
        if not least <= found <= LONGEST_S:
            self._fault(path, f"{given} is not from {least:g}s to {LONGEST_S / 86_400:g}d")
        return found

    def _effects(self) -> Iterator[Effect]:
        for place, effect in enumerate(self._given.effects):
            path = f"effects[{place}]"
            chosen = [n for n in effect.__struct_fields__ if getattr(effect, n) is not None]
            if len(chosen) != 1:
                self._fault(
                    path,
                    "an effect is one of restrict, shift, incident and notify",
                    "begin each with a dash of its own",
                )
            elif effect.restrict is not None:
                yield self._restrict(f"{path}.restrict", effect.restrict)
            elif effect.shift is not None:
                yield self._shift(f"{path}.shift", effect.shift)
            elif effect.incident is not None:
                yield OpenIncident(effect.incident.playbook)
            elif effect.notify is not None:
                yield Notify(tuple(effect.notify.channels))

    def _restrict(self, path: str, given: _Restrict) -> Restrict:
        self._check_related(path, given)
        kind = KINDS[given.kind]
        value: float | Quantity | None = None
        if given.value is None and kind.takes_value:
            self._fault(path, f"{given.kind} needs a value", f"value: a number of {kind.unit}")
        elif given.value is not None and not kind.takes_value:
            self._fault(f"{path}.value", f"{given.kind} takes no value", "leave it out")
        elif isinstance(given.value, str):
            value = self._compiled(f"{path}.value", given.value, cel.compile_quantity)
        elif given.value is not None:
            value = given.value
            if not kind.least <= value <= kind.most:
                bounds = f"{kind.least:g} to {kind.most:g} {kind.unit}"
                self._fault(f"{path}.value", f"{value:g} is out of bounds", f"give {bounds}")
        lease_s = self._seconds(f"{path}.lease", given.lease, LEAST_LEASE_S)
        return Restrict(given.kind, given.scope, value, lease_s, given.most_of_site)

    def _shift(self, path: str, given: _Shift) -> Restrict:
        """Shifting a traffic class: jobs get a share of the link, and the rest is free of them."""
        as_restriction = _Restrict(
            kind=RestrictionKind.LINK_SHARE, value=given.share, lease=given.lease
        )
        if self._kind is not ScopeKind.LINK:
            self._fault(path, "traffic is shifted on links alone", "make it a rule on links")
        if isinstance(given.share, str):
            share = self._compiled(f"{path}.share", given.share, cel.compile_quantity)
        else:
            share = given.share
            if not 0 <= share <= 1:
                self._fault(f"{path}.share", f"{share:g} is no share", "give 0 to 1")
        lease_s = self._seconds(f"{path}.lease", given.lease, LEAST_LEASE_S)
        return Restrict(as_restriction.kind, as_restriction.scope, share, lease_s)

    def _check_related(self, path: str, given: _Restrict) -> None:
        if given.scope not in RELATED[self._kind]:
            known = ", ".join(sorted(RELATED[self._kind]))
            self._fault(
                f"{path}.scope", f"a {_spaced(self._kind)} has no {given.scope}", f"one of {known}"
            )
            return
        target = target_kind(self._kind, given.scope)
        allowed = KINDS[given.kind].scopes
        if target not in allowed:
            known = ", ".join(sorted(allowed))
            self._fault(path, f"{given.kind} cannot be on a {_spaced(target)}", f"only on {known}")

    def _check_select(self) -> None:
        known = SELECTABLE_KINDS.get(self._kind, [])
        for place, kind in enumerate(self._given.select.kinds):
            if kind not in known:
                self._fault(
                    f"select.kinds[{place}]",
                    f"there is no {_spaced(self._kind)} of kind {kind!r}",
                    f"one of {', '.join(known)}" if known else "leave kinds out",
                )

    def _check_texts(self) -> None:
        texts = {"summary": self._given.summary}
        texts |= {f"annotations.{name}": text for name, text in self._given.annotations.items()}
        known = {*self._fields, "name", "site"}
        for path, text in texts.items():
            for wanted in words.placeholders(text):
                if wanted.field not in known or wanted.spec not in ("", "%"):
                    place = self._document.place_inside(path, text, wanted.offset)
                    message = f"there is no field {wanted.field!r} to fill in"
                    hint = "{field}, {field:%} for a share, {{ for a brace"
                    self._problems.append(fault(message, *place, path, hint))

    def _check_hysteresis(
        self, when: Condition, clear: Condition | None, clear_for_s: float
    ) -> None:
        fault = hysteresis.fault(when, clear, clear_for_s)
        if fault is not None:
            self._fault("clear" if self._given.clear else "when", fault.message, fault.hint)


def target_kind(kind: ScopeKind, related: Related) -> ScopeKind:
    """Return the kind of the scope ``related``, as seen from a scope of ``kind``."""
    if related is Related.SELF:
        return kind
    return ScopeKind.SITE if related is Related.PEER_SITE else ScopeKind(related.value)


def _spaced(kind: ScopeKind) -> str:
    return kind.replace("_", " ")
