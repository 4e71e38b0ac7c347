"""Restrictions in words and groups: those in force, which of them counts, and their effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.conf import settings
from django.db.models import F, Q
from django.urls import NoReverseMatch, reverse

from accounts.models import User
from accounts.visibility import Visibility
from admission.directives.remaining import Remaining, remaining_in
from admission.goodput import costs
from admission.jobs.models import Job
from dashboard import conditions, moments, scale, units
from fleet.snapshot import FleetArrays
from policies.restrictions import ledger
from policies.restrictions.actions import owner_of
from policies.restrictions.breakers import BlastRadius
from policies.restrictions.kinds import KINDS, LIMITS, RestrictionKind, gpus_in
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.restrictions.strictest import ActiveRestriction, Effective, InForce
from policies.rules.words import spoken
from policies.scopes import Scope, ScopeKind, UnknownScope, row_of

_Kind = RestrictionEvent.Kind
_State = Restriction.State
#: Scopes that have no GPUs, so that nothing is measured there.
_NO_GPUS = (ScopeKind.LINK, ScopeKind.STORAGE, ScopeKind.CLASS, ScopeKind.JOB)


# --- Words ---------------------------------------------------------------------------------------


def value_words(kind: str, value: float | None) -> str:
    """Return a value with its unit; empty where the kind takes none."""
    if value is None:
        return ""
    unit = KINDS[RestrictionKind(kind)].unit
    if unit == "share":
        return units.percent(value)
    return spoken(value, unit)


def what(kind: str, value: float | None) -> str:
    """Return a restriction's kind and value: ``power_cap_w 500 W``."""
    return f"{kind} {value_words(kind, value)}".rstrip()


def sentence(text: str) -> str:
    """Return a message as a sentence. A token that it begins with stays as it is."""
    first = text.partition(" ")[0]
    begin = text[0] if "_" in first else text[0].upper()
    return f"{begin}{text[1:]}."


def scope_words(scope: Scope) -> str:
    """Return ``rack oslo/A01``."""
    return f"{scope.kind.replace('_', ' ')} {scope.name}"


def owner_url(owner: str) -> str:
    """Return the page of a rule or of a run of a playbook; empty where there is none."""
    kind, _, name = owner.partition(":")
    run = name.partition("/")[0]
    pages = {"rule": ("rule", name), "playbook": ("playbook-run", run)}
    if kind not in pages:
        return ""
    page, argument = pages[kind]
    try:
        return reverse(page, args=[int(argument) if argument.isdecimal() else argument])
    except NoReverseMatch:
        return ""


def scope_url(fleet: FleetArrays, scope: Scope) -> str:
    """Return the page of what a restriction is on, of one that its reader may see."""
    if scope.kind is ScopeKind.JOB:
        return reverse("job-page", args=[scope.name.partition("/")[0]])  # or of a phase of it
    return conditions.place_url(fleet, scope)


# --- In force ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One restriction in force, beside others on the same scope."""

    restriction: ActiveRestriction
    #: Whether it is the one that counts there.
    counts: bool
    #: The one on a wider scope, or on the same one, that counts in its place.
    under: ActiveRestriction | None
    #: what came of it, as far as is known
    told: str = ""

    @property
    def value(self) -> str:
        return value_words(self.restriction.kind, self.restriction.value)

    @property
    def under_words(self) -> str:
        """Why the one that counts is ahead of this one."""
        is_stricter = self.under is not None and self.under.value != self.restriction.value
        return "is stricter" if is_stricter else "lasts longer"

    @property
    def owner_url(self) -> str:
        return owner_url(self.restriction.owner)


@dataclass(frozen=True)
class Group:
    """All of one kind on one scope, the strictest first."""

    kind: RestrictionKind
    scope: Scope
    href: str
    lines: tuple[Line, ...]

    @property
    def scope_words(self) -> str:
        return scope_words(self.scope)


@dataclass(frozen=True, slots=True)
class Mine:
    """What is a user's own: restrictions of this owner, and those on these jobs."""

    owner: str
    jobs: frozenset[str]

    def takes(self, each: ActiveRestriction) -> bool:
        """Say whether a restriction in force is the user's own."""
        is_on_job = each.scope.kind is ScopeKind.JOB and each.scope.name in self.jobs
        return each.owner == self.owner or is_on_job

    @property
    def condition(self) -> Q:
        """The same for rows of the database."""
        return Q(owner=self.owner) | Q(scope_kind=ScopeKind.JOB, scope_name__in=self.jobs)


@dataclass(frozen=True)
class Narrowed:
    """The filter of restrictions: a kind, and a text that scope, owner or reason has.

    ``mine``: of those that a user made, or that are on one of the user's open jobs; None: of all.
    """

    kind: str = ""
    search: str = ""
    mine: Mine | None = None

    @property
    def params(self) -> dict[str, str]:
        mine = "1" if self.mine else ""
        given = (("kind", self.kind), ("search", self.search), ("mine", mine))
        return {name: value for name, value in given if value}

    def takes(self, each: ActiveRestriction) -> bool:
        """Say whether a restriction in force passes the filter."""
        if self.kind and each.kind != self.kind:
            return False
        if self.mine and not self.mine.takes(each):
            return False
        texts = (str(each.scope), each.owner, each.reason)
        return not self.search or any(self.search.lower() in text.lower() for text in texts)

    def condition(self, visibility: Visibility) -> Q:
        """Return the filter for rows of the database, as far as the reader may search them."""
        found = Q(kind=self.kind) if self.kind else Q()
        if self.mine:
            found &= self.mine.condition
        if self.search:
            kind, _, name = self.search.partition(" ")
            texts = Q(scope_name__icontains=self.search) | Q(owner__icontains=self.search)
            reason = Q(reason__icontains=self.search) & visibility.without_names("reason")
            found &= texts | reason | Q(scope_kind=kind, scope_name=name)
        return found


def narrowed(query: Mapping[str, str], user: User) -> Narrowed:
    """Read the filter from a URL. A kind that does not exist chooses all.

    One query where what is the user's own is asked for.
    """
    kind = query.get("kind", "")
    search = query.get("search", "").replace("\0", "").strip()[:200]
    mine = _mine(user) if query.get("mine") == "1" else None
    return Narrowed(kind if kind in list(RestrictionKind) else "", search, mine)


def _mine(user: User) -> Mine:
    jobs = Job.objects.open().filter(submitted_by=user.get_username())
    return Mine(owner_of(user), frozenset(jobs.values_list("name", flat=True)))


def effective(in_force: InForce) -> dict[tuple[RestrictionKind, Scope], Effective]:
    """Return the restrictions on each scope, by kind, in the order in which they are shown."""
    found: dict[tuple[RestrictionKind, Scope], list[ActiveRestriction]] = {}
    for kind in KINDS:
        for each in in_force.of(kind):
            found.setdefault((kind, each.scope), []).append(each)
    return {key: Effective(key[0], tuple(all_)) for key, all_ in found.items()}


def group(
    fleet: FleetArrays,
    found: Mapping[tuple[RestrictionKind, Scope], Effective],
    key: tuple[RestrictionKind, Scope],
    told: Mapping[int, str],
) -> Group:
    """Return the group of one kind on one scope. A stricter one on a wider scope counts for it."""
    kind, scope = key
    wider = [
        found[kind, each].strictest for each in wider_than(fleet, scope) if (kind, each) in found
    ]
    own = found[key]
    strictest = min((own.strictest, *wider), key=lambda each: each.strictness)
    lines = tuple(
        Line(
            each,
            counts=each is strictest,
            under=None if each is strictest else strictest,
            told=told.get(each.id, ""),
        )
        for each in own.all
    )
    return Group(kind, scope, conditions.place_url(fleet, scope), lines)


def announced(fleet: FleetArrays, found: Sequence[ActiveRestriction]) -> list[Group]:
    """Return the restrictions that have to be met later, the next first."""
    return [
        Group(
            each.kind,
            each.scope,
            conditions.place_url(fleet, each.scope),
            (Line(each, counts=True, under=None),),
        )
        for each in sorted(found, key=lambda each: (each.held_from, each.id))
    ]


def wider_than(fleet: FleetArrays, scope: Scope) -> Iterator[Scope]:
    """Yield the places that a place of the inventory is in."""
    try:
        row = -1 if scope.kind in _NO_GPUS else row_of(fleet, scope)
    except UnknownScope:
        return
    if row < 0 or scope.kind is ScopeKind.SITE:
        return
    if scope.kind in (ScopeKind.ZONE, ScopeKind.POWER_DOMAIN):
        table = fleet.zones if scope.kind is ScopeKind.ZONE else fleet.domains
        yield Scope(ScopeKind.SITE, str(fleet.sites.names[table.site[row]]))
        if scope.kind is ScopeKind.POWER_DOMAIN:
            yield from _feeds(fleet, int(fleet.domains.parent[row]))
        return
    if scope.kind is ScopeKind.GPU:
        row = int(fleet.gpus.node[row])
        yield Scope(ScopeKind.NODE, str(fleet.nodes.names[row]))
    rack = row if scope.kind is ScopeKind.RACK else int(fleet.nodes.rack[row])
    if scope.kind is not ScopeKind.RACK:
        yield Scope(ScopeKind.RACK, str(fleet.racks.paths[rack]))
    yield Scope(ScopeKind.SITE, str(fleet.sites.names[fleet.racks.site[rack]]))
    zone = int(fleet.racks.zone[rack])
    if zone >= 0:
        yield Scope(ScopeKind.ZONE, str(fleet.zones.paths[zone]))
    for feed in {int(fleet.racks.feed_a[rack]), int(fleet.racks.feed_b[rack])}:
        yield from _feeds(fleet, feed)


def _feeds(fleet: FleetArrays, domain: int) -> Iterator[Scope]:
    """Yield a power domain and its ancestors."""
    for _ in range(len(fleet.domains)):
        if domain < 0:
            return
        yield Scope(ScopeKind.POWER_DOMAIN, str(fleet.domains.paths[domain]))
        domain = int(fleet.domains.parent[domain])


def told_of(ids: Iterable[int], visibility: Visibility) -> dict[int, str]:
    """Return the newest sentence about the effect of each one's present value.

    Two queries at most.
    """
    events = RestrictionEvent.objects.filter(
        restriction__in=list(ids),
        kind__in=RestrictionEvent.ONCE,
        cycle=F("restriction__cycle"),
    ).order_by("id")
    return {event.restriction_id: event.text for event in visibility.veiled(events, "text")}


# --- Breakers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """The share of a site that policies take without a person."""

    site: str
    share: float
    #: of what they may take, how much is left: a level of dashboard.scale
    level: int


def taken(fleet: FleetArrays, now: datetime) -> list[Taken]:
    """Return the share of each site that policies take, the most first. One query."""
    present = Restriction.objects.uncounted_by_people(now).only(
        "kind", "scope_kind", "scope_name", "value"
    )
    radius = BlastRadius(fleet, ((RestrictionKind(r.kind), r.scope, r.value) for r in present))
    most = settings.POLICY_MAX_SITE_SHARE
    shares = radius.share_by_site
    order = np.argsort(-shares, kind="stable").tolist()
    return [
        Taken(
            site=str(fleet.sites.names[row]),
            share=float(shares[row]),
            # More than that is not wrong: a rule or playbook may state another share.
            level=scale.level(max(1.0 - float(shares[row]) / most, 0.0) if most else None),
        )
        for row in order
    ]


# --- One of them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One step from issue to verdict."""

    name: str
    #: "done", "wait", "late" (it was due), "none" (there is none for this kind), "over" (it ended
    #: before)
    state: str
    at: datetime | None = None
    text: str = ""
    #: when it is due at the latest
    due: datetime | None = None


def steps(row: Restriction, events: Sequence[RestrictionEvent], now: datetime) -> list[Step]:
    """Return the ledger of the present value as steps: each done, due, or not to come."""
    of_value = {e.kind: e for e in events if e.cycle == row.cycle and e.kind in _Kind.values}
    issued = next((e for e in events if e.kind == _Kind.ISSUED), None)
    made = [Step("issued", "done", row.issued_at, "" if issued is None else f"by {issued.by}")]
    made.append(_let_in(row))
    over = row.effect_at is None or not (row.state == _State.IN_FORCE and row.expires_at > now)
    for kind, due in _DUE.items():
        event = of_value.get(kind) if row.effect_at is not None else None
        if event is not None:
            made.append(Step(kind.value, "done", event.at, event.text))
        elif not _comes(row, kind):
            made.append(Step(kind.value, "none", text=_WHY_NONE[kind]))
        elif row.effect_at is not None and not over:
            at = row.effect_at + due
            made.append(Step(kind.value, "wait" if now <= at else "late", due=at))
        else:
            is_pending = row.state == _State.PENDING_APPROVAL
            made.append(Step(kind.value, "wait" if is_pending else "over"))
    return made


#: How long after a value came into force each step is written down, at the latest.
_DUE: dict[Any, timedelta] = {
    _Kind.ACKNOWLEDGED: ledger.APPLY_WITHIN,
    _Kind.APPLIED: ledger.APPLY_WITHIN,
    _Kind.MEASURED: ledger.FIRST_LOOK + ledger.SETTLED,
    _Kind.VERDICT: ledger.LAST_LOOK + ledger.SETTLED,
}
_WHY_NONE = {
    _Kind.ACKNOWLEDGED: "no agent sets this kind",
    _Kind.APPLIED: "no agent sets this kind",
    _Kind.MEASURED: "no GPU is in this scope",
    _Kind.VERDICT: "no GPU is in this scope",
}


def _comes(row: Restriction, kind: Any) -> bool:
    if row.scope_kind in _NO_GPUS:
        return False
    return kind in (_Kind.MEASURED, _Kind.VERDICT) or row.kind in LIMITS


def _let_in(row: Restriction) -> Step:
    if row.state == _State.PENDING_APPROVAL:
        return Step("in force", "wait", text=row.pending_why)
    if row.effect_at is None:
        return Step("in force", "over", text="it never had an effect")
    by = f"approved by {row.decided_by}" if row.decided_by else ""
    return Step("in force", "done", row.effect_at, by)


def outcome(row: Restriction, events: Sequence[RestrictionEvent]) -> str:
    """Return the verdict on the present value; empty before there is one."""
    found = [e for e in events if e.cycle == row.cycle and e.kind == _Kind.VERDICT]
    return str(found[-1].data.get("outcome", "")) if found else ""


def reach(fleet: FleetArrays, scope: Scope) -> int | None:
    """Return the number of GPUs in a scope; None where its kind has none, or it is unknown."""
    if scope.kind in _NO_GPUS:
        return None
    try:
        return int(gpus_in(fleet, scope).sum())
    except UnknownScope:
        return None


@dataclass(frozen=True, slots=True)
class CostLine:
    """One amount of what a restriction cost, in words; empty where it is not known."""

    name: str
    value: str
    note: str


def cost(row: Restriction, user: User, now: datetime) -> tuple[list[CostLine], str]:
    """Return what a restriction cost, and what of it is not known. Three queries at most."""
    try:
        found = costs.of_restriction(row, user, now)
    except costs.NotKnown as why:
        return [], str(why)
    currency, hours = settings.ENERGY_CURRENCY, found.gpu_s / 3600.0
    note = "held back" if row.kind == RestrictionKind.POWER_CAP_W else "nobody could hold them"
    if found.shared_gpu_s:
        share = units.percent(found.shared_gpu_s / found.gpu_s)
        note += f"; {share} while others asked for the same"
    lines = [CostLine("GPU-hours", units.number(hours, 2), note)]
    for name, amount in (
        ("kWh", found.kwh),
        (f"{currency} of energy", found.energy),
        (f"{currency} of GPU-hours", found.gpu_hours),
    ):
        if amount.value is not None:
            part = "" if amount.known == 1.0 else f"known of {units.percent(amount.known)} of it"
            lines.append(CostLine(name, units.number(amount.value, 2), part))
        elif found.gpu_s:
            lines.append(CostLine(name, "", "not known"))
    return lines, _not_told(found)


def _not_told(found: costs.Cost) -> str:
    """Say which of the hours that a restriction touched are not in its cost."""
    said = [f"{found.missing:,} hours without an account"] if found.missing else []
    said += ["the hour that goes on"] if found.open else []
    said += ["projects that are not yours"] if found.is_own else []
    return ", ".join(said)


def remaining(row: Restriction, visibility: Visibility) -> Remaining | None:
    """Return what still runs where ``row``, which drains a place; None: it is gone. Queries."""
    try:
        return remaining_in(row.scope, moments.current().headroom, visibility)
    except UnknownScope:
        return None


def measures(events: Sequence[RestrictionEvent], cycle: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the effects on power, heat and clocks: pairs of the step and its numbers."""
    return [
        (event.kind, event.data["effect"])
        for event in events
        if event.cycle == cycle and event.data.get("effect")
    ]
