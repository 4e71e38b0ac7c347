"""What happened on the fleet in a span, in one list: as far as its reader may know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.db.models import Q, QuerySet

from accounts.visibility import ANOTHER, Visibility
from admission.annotations.held import held_at
from admission.jobs.models import Attempt
from headroom.contracts import LimitState
from policies.about import AboutPlace
from policies.caps.orders import OWNER as CONTROLLER
from policies.incidents import visible as seen_incidents
from policies.incidents.models import Incident
from policies.playbooks import visible as seen_runs
from policies.playbooks.models import PlaybookRun
from policies.restrictions import visible as seen_restrictions
from policies.restrictions.models import Restriction
from policies.rollouts.models import RolloutEvent, RolloutRun
from policies.scopes import Scope, ScopeKind
from telemetry.limits.models import LimitReport

__all__ = ["KINDS", "MOST", "Happening", "happenings"]

#: The kinds of happenings, each of which is the first tag of its own.
KINDS = ("incident", "restriction", "playbook", "job", "cap", "rollout")
#: So many are told, the newest.
MOST = 1000
#: Of these a GPU is as it was before.
_LIFTED = (LimitState.EXPIRED, LimitState.RESTORED)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that began or ended. ``tags`` begin with its kind.

    ``key`` is what it is about: the id of an incident, a restriction or a run, the name of a job or
    a rollout, of caps a scope; empty where the reader may not know it.
    """

    at: datetime
    what: str
    tags: tuple[str, ...]
    data: str
    key: str = ""

    @property
    def kind(self) -> str:
        """Which of :data:`KINDS` it is."""
        return self.tags[0]


def happenings(
    start: datetime,
    end: datetime,
    visibility: Visibility,
    tags: Collection[str] = (),
    about: AboutPlace | None = None,
) -> list[Happening]:
    """Return what began or ended from ``start`` to ``end``, with all of ``tags``, the newest first.

    ``about``: only what is about that place, its parts, or what it is a part of. Of a job of
    another project it is told that one began or ended, and where; it has no name. Of the
    controller's caps only the last report on each GPU is known. A query or two for each kind, and
    two more for readers who do not see all jobs. Raises UnknownScope where ``about`` is not of the
    inventory.
    """
    of_kind = {
        "incident": _incidents, "restriction": _restrictions, "playbook": _runs, "job": _jobs,
        "cap": _caps, "rollout": _rollouts,
    }  # fmt: skip
    look = _Look(start, end, visibility, about)
    asked = [kind for kind in KINDS if kind in tags]
    found = [
        each
        for kind in asked or KINDS
        for each in of_kind[kind](look)
        if start <= each.at <= end and set(tags) <= set(each.tags)
    ]
    return sorted(found, key=lambda each: each.at, reverse=True)[:MOST]


@dataclass(frozen=True, slots=True)
class _Look:
    """What is asked for: a span, for whom, and about what; None: all of the fleet."""

    start: datetime
    end: datetime
    visibility: Visibility
    about: AboutPlace | None

    def within(self, rows: QuerySet[Any], *names: str) -> QuerySet[Any]:
        """Return the rows of which one of the moments ``names`` is in the span."""
        either = Q()
        for name in names:
            either |= Q(**{f"{name}__range": (self.start, self.end)})
        return rows.filter(either)

    def about_it(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of ``rows`` with a scope that are about what is asked. A query at most."""
        return rows if self.about is None else rows.filter(pk__in=self.about.of(rows))


def _newest(rows: QuerySet[Any], name: str) -> QuerySet[Any]:
    return rows.order_by(f"-{name}", "-pk")[:MOST]


def _incidents(look: _Look) -> Iterator[Happening]:
    rows = look.within(Incident.objects.seen_by(look.visibility), "opened_at", "resolved_at")
    if look.about is not None:
        rows = rows.filter(pk__in=look.about.of_incidents(rows))
    for row in seen_incidents.incidents(_newest(rows, "opened_at"), look.visibility):
        tags, key = _tags("incident", row.severity, row.site), str(row.pk)
        yield Happening(row.opened_at, f"{row.number} opened", (*tags, "begin"), row.title, key)
        if row.resolved_at is not None:
            what = f"{row.number} {row.state}"
            yield Happening(row.resolved_at, what, (*tags, "end"), row.title, key)


def _restrictions(look: _Look) -> Iterator[Happening]:
    rows = look.within(Restriction.objects.seen_by(look.visibility), "issued_at", "ended_at")
    found = _newest(look.about_it(rows), "issued_at")
    for row in seen_restrictions.rows(found, look.visibility):
        what, tags, key = f"{row.kind} on {row.scope}", _tags("restriction", row.kind), str(row.pk)
        yield Happening(row.issued_at, f"{what} issued", (*tags, "begin"), row.reason, key)
        if row.ended_at is not None:
            yield Happening(row.ended_at, f"{what} ended", (*tags, "end"), row.ended_why, key)


def _runs(look: _Look) -> Iterator[Happening]:
    rows = look.within(PlaybookRun.objects.seen_by(look.visibility), "started_at", "ended_at")
    found = _newest(look.about_it(rows), "started_at")
    for row in look.visibility.veiled(found, *seen_runs.RUN):
        what, tags, key = f"{row.playbook} on {row.scope}", _tags("playbook", row.playbook), row.pk
        yield Happening(row.started_at, f"{what} started", (*tags, "begin"), "", str(key))
        if row.ended_at is not None:
            yield Happening(row.ended_at, f"{what} {row.state}", (*tags, "end"), row.why, str(key))


def _jobs(look: _Look) -> Iterator[Happening]:
    rows = look.within(Attempt.objects.all(), "started_at", "ended_at")
    if look.about is not None:
        rows = rows.filter(held_at(look.about, look.end.timestamp()))
    found = list(_newest(rows, "started_at"))
    names = look.visibility.shown([row.key for row in found])
    for row, name in zip(found, names, strict=True):
        gpus = sum(len(held) for held in row.placement.get("gpus", {}).values())
        sites = row.placement.get("sites", ())
        where = f"{gpus} GPUs at {', '.join(sites)}" if sites else f"{gpus} GPUs"
        tags = _tags("job", *sites)
        key = "" if name == ANOTHER else name.partition("/")[0]
        if row.started_at is not None:
            yield Happening(row.started_at, f"{name} started", (*tags, "begin"), where, key)
        if row.ended_at is not None and row.started_at is not None:
            outcome = cast(str, row.outcome) or "ended"
            # Why it ended may name others.
            why = "" if name == ANOTHER else look.visibility.text(row.why)
            end = (*tags, outcome, "end")
            yield Happening(row.ended_at, f"{name} {outcome}", end, why or where, key)


# --- Caps of the controller ----------------------------------------------------------------------


def _caps(look: _Look) -> Iterator[Happening]:
    """Yield when GPUs came under a cap of the controller, or out of it, as their agents said last.

    What one minute tells of the GPUs of a site is one happening: the controller sets many at once.
    """
    told = (LimitState.APPLIED, *_LIFTED)
    rows = look.within(
        LimitReport.objects.filter(limit__startswith=CONTROLLER, state__in=told), "at"
    )
    if look.about is not None:
        names = rows.order_by().values_list("node__name", flat=True).distinct()
        rows = rows.filter(node__name__in=[name for name in names if _has(look, name)])
    together: dict[tuple[str, bool, int], list[LimitReport]] = defaultdict(list)
    for row in _newest(rows, "at").select_related("node__rack__site"):
        minute = int(row.at.timestamp() // 60)
        together[row.node.rack.site.name, row.state in _LIFTED, minute].append(row)
    for (site, is_end, _), reports in together.items():
        tags = ("cap", site, "end" if is_end else "begin")
        where = _where(reports)
        gpus = f"{len(reports)} GPU{'s' * (len(reports) != 1)} of {where}"
        what = f"controller {'gave back' if is_end else 'capped'} {gpus}"
        data = "" if is_end else _watts(reports)
        yield Happening(min(row.at for row in reports), what, tags, data, str(where))


def _has(look: _Look, node: str) -> bool:
    return look.about is not None and look.about.has(Scope(ScopeKind.NODE, node))


def _where(reports: Sequence[LimitReport]) -> Scope:
    """Return the least of node, rack and site that has all of what was reported."""
    nodes = {row.node for row in reports}
    racks = {node.rack for node in nodes}
    if len(nodes) == 1:
        return Scope(ScopeKind.NODE, nodes.pop().name)
    rack = racks.pop()
    if racks:
        return Scope(ScopeKind.SITE, rack.site.name)
    return Scope(ScopeKind.RACK, f"{rack.site.name}/{rack.name}")


def _watts(reports: Sequence[LimitReport]) -> str:
    least, most = (round(pick(row.asked for row in reports)) for pick in (min, max))
    return f"at {least} W" if least == most else f"at {least} to {most} W"


# --- Rollouts ------------------------------------------------------------------------------------


def _rollouts(look: _Look) -> Iterator[Happening]:
    """Yield when rollouts came to each of their states, where one of their racks is concerned."""
    rows = look.within(RolloutEvent.objects.all(), "at").select_related("run")
    if look.about is not None:
        keys = {row.pk for row in RolloutRun.objects.filter(events__in=rows) if _at(look, row)}
        rows = rows.filter(run__in=keys)
    for row in look.visibility.veiled(_newest(rows, "at"), "text"):
        tags = _tags("rollout", row.run.name, row.state, _side(row))
        what = f"rollout {row.run.name} is {row.state_words}"
        yield Happening(row.at, what, tags, row.text, row.run.name)


def _side(row: RolloutEvent) -> str:
    """Return whether a rollout began or ended with an event; empty: neither."""
    if row.at == row.run.ended_at:
        return "end"
    return "begin" if row.at == row.run.started_at else ""


def _at(look: _Look, run: RolloutRun) -> bool:
    """Say whether a rollout has changed a rack of the place that is asked for."""
    about = look.about
    racks = (rack for step in run.racks for rack in step)
    return about is not None and any(about.has(Scope(ScopeKind.RACK, rack)) for rack in racks)


def _tags(*given: str) -> tuple[str, ...]:
    return tuple(each for each in given if each)
