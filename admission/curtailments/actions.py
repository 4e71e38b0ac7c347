"""What is done about curtailments: to work out their cost, to ask for them, and to cancel them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts import audit
from accounts.models import User
from admission.core.allocation.watts import Watts
from admission.core.curtailment import Ask, BadAsk, Baseline, baseline_of, held_from
from admission.core.curtailment.baseline import LONGEST_S, SETTLES_S
from admission.core.curtailment.cost import BEYOND, Asked, Estimate, candidates_of, estimate
from admission.core.curtailment.foreseen import estimate_held, obeyed
from admission.core.directives.book import Kind
from admission.core.directives.responding import settled
from admission.core.directives.standing import OWNER as CONTROLLER
from admission.core.directives.standing import able_to_stand
from admission.curtailments import metered
from admission.curtailments.models import Curtailment
from admission.cycle import live
from admission.cycle.holding import TUNING
from admission.directives.models import Directive
from admission.directives.placed import placed_on
from fleet import snapshot
from policies.restrictions import actions as restriction_actions
from policies.restrictions.book import Conflict
from policies.restrictions.kinds import HELD_BEFORE, LONGEST, RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind

__all__ = ["Plan", "Refused", "Request", "ask", "cancel", "plan"]

_LOOKS_BACK = timedelta(seconds=LONGEST_S)
_SETTLES = timedelta(seconds=SETTLES_S)
#: How many that were told to stand still say how likely the next one does.
_REMEMBERED = 50


class Refused(Exception):
    """What is asked cannot be. ``code`` is stable; ``field`` says what to change."""

    def __init__(self, code: str, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.code, self.field = code, field


@dataclass(frozen=True)
class Request:
    """What is asked of a site, and when."""

    site: str
    ask: Ask
    starts_at: datetime
    ends_at: datetime
    reason: str


@dataclass(frozen=True)
class Plan:
    """The answer beforehand: baseline, target, and what it would cost."""

    request: Request
    baseline: Baseline | None
    target_w: float
    estimate: Estimate


def plan(request: Request, *, now: datetime) -> Plan:
    """Return what a curtailment would come to. Changes nothing. Raises :class:`Refused`."""
    _check(request, now)
    baseline = _baseline(request.site, now)
    if baseline is None and request.ask.to_w is None:
        raise Refused(
            "no_baseline",
            f"there is not a minute of readings of the power meters of {request.site} to compare"
            " with: give to_w",
            field="to_w",
        )
    try:
        target_w = request.ask.target_w(0.0 if baseline is None else baseline.watts)
    except BadAsk as error:
        raise Refused("invalid", str(error), field=error.field) from error
    spread_w = 0.0 if baseline is None else baseline.spread_w
    return Plan(request, baseline, target_w, _estimate(request, target_w, spread_w, now))


def ask(user: User, request: Request, *, now: datetime, even_if_short: bool = False) -> Curtailment:
    """Have a site draw less as a person asks for it. Raises :class:`Refused`.

    ``even_if_short``: also where jobs cannot give enough.
    """
    found = plan(request, now=now)
    if not (found.estimate.is_in_reach or even_if_short):
        raise out_of_reach(found)
    with transaction.atomic():
        try:
            held = restriction_actions.issue(
                user, wanted_of(found, owner=restriction_actions.owner_of(user)), now=now
            )
        except Conflict as error:
            raise Refused(error.code, str(error)) from error
        row = keep(found, source=held.owner, restriction_id=held.pk, now=now)
        audit.record(
            user, "curtailment.ask", row.site, id=row.pk, target_w=row.target_w,
            starts_at=row.starts_at.isoformat(), ends_at=row.ends_at.isoformat(),
            reason=row.reason,
        )  # fmt: skip
    return row


def out_of_reach(found: Plan) -> Refused:
    """Return the refusal of what jobs cannot give, with what is possible."""
    cost = found.estimate
    beyond = sum(each.what == BEYOND for each in cost.measures)
    more = f"; beyond that {beyond} of them would be slowed" if beyond else ""
    return Refused(
        "out_of_reach",
        f"the site draws {cost.load_w / 1e3:.1f} kW, and by what they agreed to jobs can give"
        f" {cost.possible_w / 1e3:.1f} kW for certain of the {cost.need_w / 1e3:.1f} kW: the lowest"
        f" target is {cost.least_target_w / 1e3:.1f} kW{more}",
        field="by_w",
    )


def wanted_of(found: Plan, *, owner: str, most_of_site: float | None = None) -> Wanted:
    """Return the restriction that holds a curtailment."""
    request = found.request
    return Wanted(
        kind=RestrictionKind.POWER_BUDGET_W,
        scope=Scope(ScopeKind.SITE, request.site),
        value=found.target_w,
        reason=request.reason,
        owner=owner,
        cause=f"curtailment from {request.starts_at:%Y-%m-%dT%H:%M:%SZ}: {request.reason}"[:300],
        expires_at=request.ends_at,
        starts_at=request.starts_at,
        most_of_site=most_of_site,
    )


def keep(
    found: Plan, *, source: str, restriction_id: int, now: datetime, **event: Any
) -> Curtailment:
    """Write a curtailment down that a restriction holds."""
    request, baseline = found.request, found.baseline
    return Curtailment.objects.create(
        site=request.site,
        asked={name: value for name, value in asdict(request.ask).items() if value is not None},
        source=source,
        reason=request.reason,
        target_w=found.target_w,
        baseline_w=None if baseline is None else baseline.watts,
        baseline_s=0.0 if baseline is None else baseline.seconds,
        announced_at=now,
        starts_at=request.starts_at,
        ends_at=request.ends_at,
        restriction_id=restriction_id,
        estimate=found.estimate.as_data(),
        **event,
    )


def cancel(user: User, pk: int, *, why: str, now: datetime) -> Curtailment:
    """End a curtailment before its time. Raises :class:`Refused`, DoesNotExist."""
    with transaction.atomic():
        row = Curtailment.objects.select_for_update().get(pk=pk)
        if row.canceled_at is not None or row.ends_at <= now:
            raise Refused("ended", "it is over already")
        with suppress(Conflict):  # somebody may have lifted the restriction itself
            restriction_actions.lift(user, row.restriction_id, why=why, now=now)
        note_canceled(row, by=user.get_username(), now=now)
        audit.record(user, "curtailment.cancel", row.site, id=row.pk, reason=why)
    return row


def note_canceled(row: Curtailment, *, by: str, now: datetime) -> None:
    """Write down that a curtailment has ended before its time: until then it counts."""
    row.canceled_at, row.canceled_by = now, by[:200]
    row.ends_at = max(now, row.starts_at)
    row.save(update_fields=["canceled_at", "canceled_by", "ends_at"])


def _check(request: Request, now: datetime) -> None:
    if request.site not in snapshot.current().sites.index_by_name:
        raise Refused("invalid", f"there is no site {request.site!r}", field="site")
    if not now <= request.starts_at < request.ends_at <= now + LONGEST:
        raise Refused(
            "invalid",
            f"it has to start now or later, and to end after that, within {LONGEST.days} days",
            field="starts_at",
        )


def _baseline(site: str, now: datetime) -> Baseline | None:
    """Return the baseline of a site by its meters. Two queries."""
    begin = now - _LOOKS_BACK
    earlier = Curtailment.objects.filter(site=site, ends_at__gt=begin - _SETTLES)
    spans = [
        ((start - HELD_BEFORE).timestamp(), (end + _SETTLES).timestamp())
        for start, end in earlier.values_list("starts_at", "ends_at")
    ]
    load = metered.read(snapshot.current(), site, begin.timestamp(), now.timestamp())
    return baseline_of(
        load.times, load.watts, until=now.timestamp() + metered.EVERY_S,
        every_s=metered.EVERY_S, without=spans,
    )  # fmt: skip


def _estimate(request: Request, target_w: float, spread_w: float, now: datetime) -> Estimate:
    """Return the cost of a target by the loads of now."""
    load = live.running_load(snapshot.current(), now.timestamp())
    placed = placed_on(load.held.fleet)
    asked = Asked(
        target_w=target_w,
        spread_w=spread_w,
        lasts_s=(request.ends_at - held_from(now, request.starts_at)).total_seconds(),
    )
    holding = load.looked_at(load.measured)
    if holding is not None:
        may_pause = able_to_stand(placed, placed.pauses())
        return estimate_held(
            holding, request.site, asked, may_pause=may_pause, tuning=TUNING, obeys=_obeys()
        )
    ids = placed.in_scope(Scope(ScopeKind.SITE, request.site), load.in_force)
    running = [
        each
        for each in placed.load(ids.tolist())
        if len(each.nodes) and each.has_begun and not each.is_ending
    ]
    agreed, headroom = placed.agreed(running), load.measured
    terms = [(each, settled(each, agreed[each.id], headroom.fleet)) for each in running]
    row = headroom.fleet.sites.index_by_name[request.site]
    return estimate(
        candidates_of(terms, Watts(headroom), now.timestamp()),
        asked,
        load_w=float(headroom.powers[ScopeKind.SITE].drawn_w[row]),
    )


def _obeys() -> float:
    """Return how likely a job that is told to stands still in time, by the last ones. One query."""
    last = Directive.objects.filter(kind=Kind.PAUSE, owner=CONTROLLER).order_by("-issued_at")
    told = last.values_list("applied_at", "ended_at")[:_REMEMBERED]
    rested = [at is not None and (end is None or at < end) for at, end in told]
    return obeyed(len(rested), sum(rested))
