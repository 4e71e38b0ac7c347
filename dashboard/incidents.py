"""Incidents for their pages: filters from the URL, and one incident with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Case, Count, Q, QuerySet, Value, When
from django.utils import timezone

from accounts.visibility import Visibility
from dashboard import scopes
from fleet.snapshot import FleetArrays
from headroom.numbers import number_of
from policies import standing
from policies.firings import Severity
from policies.headroom.columns import FIELDS
from policies.incidents import visible
from policies.incidents.models import (
    Incident,
    IncidentMember,
    IncidentQuerySet,
    Silence,
    TimelineEntry,
)
from policies.playbooks.models import PlaybookRun
from policies.rules.words import spoken
from policies.scopes import Scope, ScopeKind

State = Incident.State

#: Of an incident's members and of its timeline the page shows so many.
MEMBERS_SHOWN = 50
ENTRIES_SHOWN = 100
_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_ORDER = {State.OPEN: 0, State.ACKNOWLEDGED: 1, State.CLOSED: 2, State.RESOLVED: 2}


# --- The list ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters in the URL. Empty: all."""

    state: str = ""
    severity: str = ""
    site: str = ""
    rule: str = ""
    assignee: str = ""
    scope: str = ""
    #: the name of who asks, for what is theirs alone
    mine: str = ""
    error: str = ""

    @property
    def params(self) -> dict[str, str]:
        """The filters as a query string, without empty ones."""
        names = ("state", "severity", "site", "rule", "assignee", "scope")
        given = {name: value for name in names if (value := getattr(self, name))}
        return {**given, "mine": "1"} if self.mine else given

    @property
    def narrowed(self) -> bool:
        """Whether anything but the state is filtered."""
        return bool(self.params.keys() - {"state"})


def read(params: Mapping[str, str], reader: str = "") -> Filters:
    """Return the filters of a query string. ``error`` names those that are wrong and left out.

    ``mine=1``: what ``reader``, a user by name, was assigned or has acknowledged.
    """
    given = {name: value.replace("\0", "").strip()[:400] for name, value in params.items()}
    known = {"state": State.values, "severity": [each.value for each in Severity], "mine": ["1"]}
    wrong = [
        f"there is no {name} {given[name][:40]!r}"
        for name, values in known.items()
        if given.get(name) and given[name] not in values
    ]
    chosen = {name: given[name] for name, values in known.items() if given.get(name) in values}
    chosen |= {"mine": reader} if "mine" in chosen else {}
    texts = {name: given.get(name, "") for name in ("site", "rule", "assignee", "scope")}
    return Filters(**chosen, **texts, error=", ".join(wrong))


def in_scope(filters: Filters, visibility: Visibility) -> IncidentQuerySet:
    """Return the incidents that pass all filters but the state."""
    exact = {name: getattr(filters, name) for name in ("severity", "site", "rule", "assignee")}
    found = Incident.objects.seen_by(visibility).filter(
        **{name: value for name, value in exact.items() if value}
    )
    if filters.mine:
        found = found.filter(Q(assignee=filters.mine) | Q(acknowledged_by=filters.mine))
    if filters.scope:
        about = IncidentMember.objects.filter(visibility.seen_rows(), scope_name=filters.scope)
        found = found.filter(pk__in=about.values("incident"))
    return found


def listed(filters: Filters, visibility: Visibility) -> QuerySet[Incident]:
    """Return the incidents of the page: open ones first, the worst of them on top, then newest."""
    found = in_scope(filters, visibility)
    if filters.state:
        found = found.filter(state=filters.state)
    state = Case(*(When(state=each, then=Value(rank)) for each, rank in _ORDER.items()))
    # How severe they were puts none of those that are over before another.
    severity = Case(
        When(state__in=Incident.OVER, then=Value(0)),
        *(When(severity=each.value, then=Value(rank)) for each, rank in _RANK.items()),
    )
    return found.order_by(state, severity, "-opened_at", "-pk")


@dataclass(frozen=True, slots=True)
class Now:
    """How many there are in the filters, whatever the state that is chosen."""

    by_state: dict[str, int]
    #: of those that are open or acknowledged, the worst first
    by_severity: list[tuple[str, int]]
    #: open ones that nobody has taken
    untaken: int
    worst: Incident | None
    silences: int

    @property
    def unresolved(self) -> int:
        return self.by_state[State.OPEN] + self.by_state[State.ACKNOWLEDGED]

    @property
    def total(self) -> int:
        return sum(self.by_state.values())


def current(filters: Filters, visibility: Visibility, now: datetime) -> Now:
    """Return the incidents in numbers. Five queries at most."""
    found = in_scope(filters, visibility).order_by()
    worst = listed(filters, visibility).exclude(state__in=Incident.OVER)[:1]
    rows = list(found.values_list("state", "severity").annotate(count=Count("pk")))
    by_state, by_severity = Counter[str](), Counter[str]()
    for state, severity, count in rows:
        by_state[state] += count
        if state not in Incident.OVER:
            by_severity[severity] += count
    return Now(
        by_state={each: by_state[each] for each in State.values},
        by_severity=[(each, by_severity[each]) for each in _RANK if by_severity[each]],
        untaken=found.filter(state=State.OPEN, assignee="").count(),
        worst=next(iter(visible.incidents(worst, visibility)), None),
        silences=Silence.objects.active(now).count(),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list."""

    incident: Incident
    firing: int
    members: int
    runs: list[PlaybookRun]

    @property
    def lasted_s(self) -> float:
        return lasted_s(self.incident)


def lasted_s(incident: Incident) -> float:
    """Return the time until an incident was resolved, s; 0 while it is not."""
    end = incident.resolved_at or incident.opened_at
    return (end - incident.opened_at).total_seconds()


def rows(incidents: Iterable[Incident], visibility: Visibility) -> list[Row]:
    """Return the lines of ``incidents``. Three queries at most."""
    shown = visible.incidents(incidents, visibility)
    ids = [incident.pk for incident in shown]
    counted = IncidentMember.objects.filter(incident__in=ids).order_by().values("incident")
    fires = Q(cleared_at=None, dismissed=False)
    counts = {
        row["incident"]: (row["fires"], row["all"])
        for row in counted.annotate(fires=Count("pk", filter=fires), all=Count("pk"))
    }
    live: dict[int, list[PlaybookRun]] = {}
    for run in (
        PlaybookRun.objects.live().seen_by(visibility).filter(incident_id__in=ids).order_by("pk")
    ):
        live.setdefault(run.incident_id or 0, []).append(run)
    return [Row(each, *counts.get(each.pk, (0, 0)), live.get(each.pk, [])) for each in shown]


# --- One incident --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that a condition looked at, in words."""

    field: str
    value: str
    help: str


@dataclass(frozen=True, slots=True)
class Member:
    """A firing with the page of its scope, and the readings that its condition looked at."""

    row: IncidentMember
    scope: str
    href: str
    readings: list[Reading]
    #: why nobody is told of it; empty: somebody is
    quiet: str
    #: what is done about it
    answer: standing.Answer | None = None

    @property
    def state(self) -> str:
        if self.row.cleared_at is not None:
            return "cleared"
        return "dismissed" if self.row.dismissed else "firing"


def members(
    incident: Incident, visibility: Visibility, fleet: FleetArrays, now: datetime
) -> list[Member]:
    """Return its firings: active ones first, the worst of them on top. Two queries at most."""
    severity = Case(*(When(severity=each.value, then=Value(rank)) for each, rank in _RANK.items()))
    ended = Case(When(cleared_at=None, then=Value(0)), default=Value(1))
    seen = incident.members.filter(visibility.seen_rows()).select_related("silence")
    found = seen.order_by(ended, severity, "fired_at", "pk")[:MEMBERS_SHOWN]
    return [_member(row, fleet, now) for row in visible.members(found, visibility)]


def _member(row: IncidentMember, fleet: FleetArrays, now: datetime) -> Member:
    scope = Scope(ScopeKind(row.scope_kind), row.scope_name)
    around = {"from": row.since - timedelta(minutes=15)}
    if row.cleared_at is not None:
        around["to"] = row.cleared_at + timedelta(minutes=5)
    query = "&".join(f"{name}={at:%Y-%m-%dT%H:%M:%S}" for name, at in around.items())
    return Member(
        row, scopes.words(scope), scopes.href(fleet, scope, query), _readings(row), _quiet(row, now)
    )


def _readings(row: IncidentMember) -> list[Reading]:
    known = FIELDS.get(ScopeKind(row.scope_kind), {})
    found = []
    for name, value in sorted(row.values.items()):
        field = known.get(name)
        text = spoken(number_of(value), field.unit if field else "")
        found.append(Reading(name, text, field.help if field else ""))
    return found


def _quiet(row: IncidentMember, now: datetime) -> str:
    if row.muted_until is not None and row.muted_until > now:
        until = f"{row.muted_until:%m-%d %H:%M} UTC"
        return f"silenced until {until} by {row.muted_by}: {row.muted_reason}"
    if row.silence is not None:
        return f"silence {row.silence.pk} of {row.silence.author}: {row.silence.reason}"
    return f"explained by {row.inhibited_by}" if row.inhibited_by else ""


def with_standing(
    incident: Incident, shown: Sequence[Member], visibility: Visibility, now: datetime
) -> tuple[str, list[Member]]:
    """Return what an incident is at ``now``, and its members with what is done about each.

    By the same words as the API.
    """
    found = standing.of(incident, [each.row for each in shown], now)
    answers = {
        pk: replace(each, text=str(visibility.data(each.text)))
        for pk, each in found.answers.items()
    }
    told = [replace(each, answer=answers.get(each.row.pk)) for each in shown]
    return str(visibility.data(found.text)), told


def entries(incident: Incident, visibility: Visibility) -> list[TimelineEntry]:
    """Return the timeline, the newest first. Two queries at most."""
    return visible.entries(incident.timeline.order_by("-at", "-pk")[:ENTRIES_SHOWN], visibility)


# --- Silences ------------------------------------------------------------------------------------


def silences(visibility: Visibility, now: datetime) -> list[Silence]:
    """Return silences in force or to come, the first to end on top. Two queries at most."""
    found = Silence.objects.filter(expires_at__gt=now).order_by("expires_at", "pk")[:100]
    return visibility.veiled(found, *visible.SILENCE)


def suggested_matchers(incident: Incident) -> str:
    """Return matchers, one on each line, that keep an incident like this one quiet."""
    lines = [f'rule="{incident.rule}"']
    if incident.site:
        lines.append(f'site="{incident.site}"')
    return "\n".join(lines)


def until(hours: str, now: datetime | None = None) -> datetime | None:
    """Return when ``hours`` from now is; None where that is no number of hours."""
    try:
        size = float(hours.strip().replace(",", "."))
        return (now or timezone.now()) + timedelta(hours=size)
    except (ValueError, OverflowError):
        return None
