"""Rules for their pages: the state of each rule, its versions, the results of replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.db.models import Max, QuerySet
from django.utils.safestring import SafeString

from dashboard import scopes, units
from dashboard.svg import axis
from dashboard.svg.axis import Axis, Moment, Span
from fleet.snapshot import FleetArrays
from headroom.documents import DocumentError
from policies.restrictions.kinds import KINDS
from policies.rules import document
from policies.rules.document import Restrict
from policies.rules.machine import Phase
from policies.rules.models import (
    RuleEpisode,
    RuleFault,
    RuleProgress,
    RuleReplay,
    RuleVersion,
)
from policies.rules.words import spoken
from policies.scopes import Scope, ScopeKind

States = RuleVersion.States

#: Scopes that a line of the list names.
_PLACES = 3
#: Scopes on which something is under way, and episodes, that a page lists.
ACTIVE_SCOPES_SHOWN = 50
EPISODES_SHOWN = 50
#: Bars that the chart of a replay draws of one kind.
_MOST_BARS = 500
_TIMES = "\N{MULTIPLICATION SIGN}"
_ORDER = {States.ACTIVE: 0, States.CANARY: 1, States.SHADOW: 2, States.DRAFT: 3, States.RETIRED: 4}


@lru_cache(maxsize=4096)
def said(text: str) -> document.Rule | None:
    """Return the rule of a version; None where a release of ours no longer takes it."""
    try:
        return document.read(text)
    except DocumentError:
        return None


# --- Where rules stand ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActiveScope:
    """A scope on which something is under way."""

    name: str
    href: str
    phase: str
    version: RuleVersion
    since: datetime | None
    fired_at: datetime | None
    clear_since: datetime | None


@dataclass(slots=True)
class Counts:
    """On how many scopes a rule fires, and so on; of shadows, would fire."""

    firing: list[str] = field(default_factory=list)
    pending: int = 0
    would: int = 0


def _count(progress: Sequence[RuleProgress]) -> dict[str, Counts]:
    """Return the states of rules, by name. A version that is not in ``progress`` has none."""
    found: dict[str, Counts] = {}
    for row in progress:
        counts = found.setdefault(row.version.name, Counts())
        for name, (phase, *_) in row.scopes.items():
            if phase == Phase.PENDING:
                counts.pending += 1
            elif row.version.state == States.SHADOW:
                counts.would += 1
            else:
                counts.firing.append(name)
    return found


def _under_way() -> QuerySet[RuleProgress]:
    rows = RuleProgress.objects.filter(version__in=RuleVersion.objects.live()).exclude(scopes={})
    return rows.select_related("version").defer("version__text")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list."""

    name: str
    #: the active version, else the one that has come furthest; None: all are retired
    main: RuleVersion | None
    said: document.Rule | None
    #: the others that are not retired
    others: list[RuleVersion]
    counts: Counts
    places: list[tuple[str, str]]
    faults: int
    last_fired_at: datetime | None


@dataclass(frozen=True, slots=True)
class Overview:
    """All rules in numbers."""

    rules: int
    active: int
    drafts: int
    faulty: int
    #: names and on how many scopes, the most first
    firing: list[tuple[str, int]]
    pending: int

    @property
    def scopes(self) -> int:
        return sum(count for _, count in self.firing)


SHOWS = {"": "all", "firing": "firing", "pending": "pending", "draft": "drafts", "faulty": "faulty"}


@dataclass(frozen=True, slots=True)
class Listing:
    """The rules that pass the filters, and numbers about all of them."""

    overview: Overview
    #: names, those that fire first
    names: list[str]
    counts: dict[str, Counts]
    #: how many there are of each of SHOWS
    by_show: dict[str, int]


def listing(show: str, search: str) -> Listing:
    """Return the rules that a page lists. Four queries, whatever their number."""
    counts = _count(list(_under_way()))
    versions = RuleVersion.objects.order_by()
    active = set(versions.filter(state=States.ACTIVE).values_list("name", flat=True))
    drafts = set(versions.filter(state=States.DRAFT).values_list("name", flat=True))
    faulty = set(RuleFault.objects.values_list("version__name", flat=True))
    every = set(versions.values_list("name", flat=True))
    of = {
        "": every,
        "firing": {name for name, each in counts.items() if each.firing} & every,
        "pending": {name for name, each in counts.items() if each.pending} & every,
        "draft": drafts,
        "faulty": faulty,
    }
    firing = sorted(((n, len(counts[n].firing)) for n in of["firing"]), key=lambda f: (-f[1], f[0]))
    chosen = [name for name in of[show] if search.lower() in name.lower()]
    none = Counts()
    chosen.sort(key=lambda n: (-len(counts.get(n, none).firing), -counts.get(n, none).pending, n))
    pending = sum(each.pending for each in counts.values())
    overview = Overview(len(every), len(active), len(drafts), len(faulty), firing, pending)
    return Listing(overview, chosen, counts, {name: len(found) for name, found in of.items()})


def rows(names: Sequence[str], counts: Mapping[str, Counts], fleet: FleetArrays) -> list[Row]:
    """Return the lines of rules. Three queries."""
    versions: dict[str, list[RuleVersion]] = {}
    for row in RuleVersion.objects.filter(name__in=names).exclude(state=States.RETIRED):
        versions.setdefault(row.name, []).append(row)
    faults: dict[str, int] = {}
    for name, count in RuleFault.objects.filter(version__name__in=names).values_list(
        "version__name", "count"
    ):
        faults[name] = faults.get(name, 0) + count
    last = RuleEpisode.objects.filter(rule__in=names).exclude(mode="shadow").order_by()
    fired = dict(last.values_list("rule").annotate(at=Max("fired_at")))
    return [
        _row(name, versions.get(name, []), counts.get(name, Counts()), fleet,
             faults.get(name, 0), fired.get(name))
        for name in names
    ]  # fmt: skip


def _row(
    name: str,
    versions: list[RuleVersion],
    counts: Counts,
    fleet: FleetArrays,
    faults: int,
    fired_at: datetime | None,
) -> Row:
    ordered = sorted(versions, key=lambda row: (_ORDER[States(row.state)], -row.number))
    main = ordered[0] if ordered else None
    says = said(main.text) if main else None
    kind = says.scope if says else ScopeKind.SITE
    places = [(n, scopes.href(fleet, Scope(kind, n))) for n in sorted(counts.firing)[:_PLACES]]
    return Row(name, main, says, ordered[1:], counts, places, faults, fired_at)


# --- One rule ------------------------------------------------------------------------------------


def active_scopes(name: str, kind: ScopeKind, fleet: FleetArrays) -> list[ActiveScope]:
    """Return scopes with rules pending, firing or clearing, the firing ones first. One query."""
    found = [
        _active_scope(row.version, kind, name, kept, fleet)
        for row in _under_way().filter(version__name=name)
        for name, kept in row.scopes.items()
    ]
    rank = {"firing": 0, "clearing": 1, "would fire": 2, "pending": 3}
    return sorted(found, key=lambda each: (rank[each.phase], each.name))


def _active_scope(
    version: RuleVersion, kind: ScopeKind, name: str, kept: Sequence[Any], fleet: FleetArrays
) -> ActiveScope:
    phase, *times = kept
    words = Phase(phase).name.lower()
    if version.state == States.SHADOW and phase != Phase.PENDING:
        words = "would fire"
    since, fired_at, clear_since = (
        None if at is None else datetime.fromtimestamp(at, UTC) for at in times
    )
    href = scopes.href(fleet, Scope(kind, name))
    return ActiveScope(name, href, words, version, since, fired_at, clear_since)


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect of a rule where it fires, in words."""

    kind: str
    words: str


def effects(rule: document.Rule) -> list[Effect]:
    """Return all effects of a rule, in words."""
    return [_effect(each) for each in rule.effects]


def _effect(each: document.Effect) -> Effect:
    if isinstance(each, Restrict):
        lease = spoken(each.lease_s, "s")
        where = f"{each.scope}, for {lease} at a time"
        return Effect("restrict", f"{each.kind}{_amount(each)} on {where}")
    if isinstance(each, document.OpenIncident):
        run = f", and run {each.playbook}" if each.playbook else ""
        return Effect("incident", f"open an incident{run}")
    return Effect("notify", f"tell {', '.join(each.channels)}")


def _amount(each: Restrict) -> str:
    if each.value is None:
        return ""
    if isinstance(each.value, float):
        return f" at {spoken(each.value, KINDS[each.kind].unit)}"
    return f" at {each.value.expression}"


# --- Replays -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row of a replay's chart."""

    name: str
    svg: SafeString
    figure: str


@dataclass(frozen=True, slots=True)
class Restricted:
    """How often a version would have set this restriction, and for how long over all scopes, s."""

    kind: str
    count: int
    scope_s: float


@dataclass(frozen=True, slots=True)
class Side:
    """The outcome of a replay for one version."""

    title: str
    firings: int
    scopes: int
    firing_s: float
    open_at_end: int
    restricted: list[Restricted]
    delayed_jobs: int
    delayed_s: float
    pages: int
    episodes: list[dict[str, Any]]
    not_recorded: list[str]
    without_reservations: list[str]
    rows: list[ChartRow]


@dataclass(frozen=True, slots=True)
class ReplayView:
    """A replay: the version asked for, and the active one beside it, on one time axis."""

    replay: RuleReplay
    axis: Axis
    sides: list[Side]
    step_s: float = 0.0
    tier: str = ""
    took_s: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.replay.state in (RuleReplay.States.DONE, RuleReplay.States.FAILED)


def replay_view(replay: RuleReplay) -> ReplayView:
    """Return a replay as its panel shows it."""
    at = Axis(replay.start_at.timestamp(), replay.end_at.timestamp())
    result = replay.result or {}
    named = {"version": f"v{replay.version.number}", "active": f"v{result.get('active_number')}"}
    sides = [
        _side(result[key], f"{title}, {'active' if key == 'active' else 'replayed'}", at)
        for key, title in named.items()
        if result.get(key)
    ]
    return ReplayView(
        replay, at, sides, result.get("step_s", 0.0), result.get("tier", ""),
        result.get("took_s", 0.0),
    )  # fmt: skip


def _side(given: Mapping[str, Any], title: str, at: Axis) -> Side:
    restricted = [
        Restricted(kind, int(each["count"]), each["scope_s"])
        for kind, each in sorted(given["restricted"].items())
    ]
    return Side(
        title=title,
        firings=given["firings"],
        scopes=given["scopes"],
        firing_s=given["firing_s"],
        open_at_end=given["open_at_end"],
        restricted=restricted,
        delayed_jobs=given["delayed_jobs"],
        delayed_s=given["delayed_s"],
        pages=given["pages"],
        episodes=[_episode(each) for each in given["episodes"][:EPISODES_SHOWN]],
        not_recorded=given.get("not_recorded", []),
        without_reservations=given.get("without_reservations", []),
        rows=_chart_rows(given, restricted, title, at),
    )


def _episode(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **each,
        "fired_at": datetime.fromtimestamp(each["fired_at"], UTC),
        "cleared_at": _moment(each["cleared_at"]),
    }


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _chart_rows(
    given: Mapping[str, Any], restricted: Sequence[Restricted], title: str, at: Axis
) -> list[ChartRow]:
    """Return charts of the scopes it fires on, its restrictions and its pages, below each other."""
    episodes, over = given["episodes"], given["series"]
    most = max(over["firing"], default=0)
    label = f"{title}: fires on {units.count(most, 'scope')} at most"
    line = axis.line(at, over["t"], [float(n) for n in over["firing"]], label, is_step=True)
    rows = [ChartRow("firing, scopes", line, f"0 to {most}"), _fired(episodes, given, title, at)]
    for each in restricted:
        bars = [
            _bar(one, "restrict", each.kind)
            for one in episodes
            if any(text.startswith(f"{each.kind} on ") for text in one["restricts"])
        ]
        words = f"{title}: {each.kind}, {units.count(each.count, 'time')}"
        svg = axis.spans(at, bars[:_MOST_BARS], words)
        rows.append(ChartRow(f"restricted: {each.kind}", svg, f"{each.count}{_TIMES}"))
    rows.append(_paged(episodes, given["pages"], title, at))
    return rows


def _fired(
    episodes: Sequence[Mapping[str, Any]], given: Mapping[str, Any], title: str, at: Axis
) -> ChartRow:
    bars = [_bar(one, "warning", "fired") for one in episodes[:_MOST_BARS]]
    label = f"{title}: fired {units.count(given['firings'], 'time')}"
    return ChartRow("fired", axis.spans(at, bars, label), f"{given['firings']}{_TIMES}")


def _paged(episodes: Sequence[Mapping[str, Any]], pages: int, title: str, at: Axis) -> ChartRow:
    marks = [
        Moment(one["fired_at"], "page", f"{one['scope']}: {one['summary']}")
        for one in episodes[:_MOST_BARS]
        if pages
    ]
    label = f"{title}: paged {units.count(pages, 'time')}"
    return ChartRow("paged", axis.moments(at, marks, label), f"{pages}{_TIMES}")


def _bar(one: Mapping[str, Any], look: str, words: str) -> Span:
    return Span(one["fired_at"], one["cleared_at"], look, f"{words} on {one['scope']}")
