"""Site conditions: how large a job each row of racks takes, and the consequences of its state.

Every sentence is computed from a :class:`Headroom`, and each way out that it names was tried: the
headroom was evaluated again as it would be then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from policies.headroom.binding import Token, of_budget, quantity
from policies.headroom.columns import Floats
from policies.headroom.evaluate import Headroom
from policies.headroom.row_capacity import RowCapacity, limits_w, row_capacities, throttling_gpus
from policies.headroom.tables import names_of
from policies.headroom.ways import (
    JOB_STEP_W,
    Under,
    Way,
    best_rows,
    cap_of_row,
    elsewhere,
    job_size,
)
from policies.scopes import Scope, ScopeKind

#: What would be exceeded, in words.
_BUDGETS = {
    Token.RACK_POWER: "budget of power",
    Token.FEED_POWER: "capacity",
    Token.SITE_POWER: "budget of power",
    Token.COOLING: "capacity of cooling",
}
#: A link that is used more than this is told of.
BUSY_LINK = 0.8
#: No more consequences than so many are told, the most urgent first.
MOST = 12
MOST_OF_A_KIND = 4


@dataclass(frozen=True)
class Consequence:
    """A shortage that exists, is coming, or would come with another job, and the ways out of it.

    ``when`` is ``now``, ``soon`` (a forecast with a good record claims it) or ``if``; ``in_s`` the
    time until then, at the earliest. Of ``need`` there is ``have``: it is short by ``short``, in
    ``unit``.
    """

    token: Token
    when: str
    scope: Scope | None
    #: row of racks that it is about, empty where it is not about one
    row: str
    sentence: str
    need: float
    have: float
    unit: str
    in_s: float | None = None
    ways: tuple[Way, ...] = ()
    #: of one that is coming: between which times, and how sure
    claim: str = ""

    @property
    def short(self) -> float:
        """By how much it is short; 0 where it is not."""
        return max(self.need - self.have, 0.0)


@dataclass(frozen=True)
class RowConditions:
    """One row of racks. Powers are in W, and ``None`` says that nothing is known."""

    row: str
    racks: int
    gpus: int
    load_w: float
    budget_w: float
    #: the largest job beside today's load, and what ends its growth
    job_w: float
    job_limit: str
    job_limit_at: str
    #: the largest by power and cooling alone, and by heat alone
    job_by_power_w: float
    job_by_heat_w: float
    hottest_c: float | None
    margin_c: float | None
    steady_margin_c: float | None
    throttle_in_s: float | None
    stale: bool


@dataclass(frozen=True)
class SiteConditions:
    """The conditions of a site: the answer first, then its numbers, rows and consequences."""

    site: str
    at: float
    answer: str
    load_w: float
    budget_w: float
    power_left_w: float
    confidence: float
    cooling_left_w: float
    hottest_c: float | None
    margin_c: float | None
    stale_nodes: int
    rows: tuple[RowConditions, ...]
    consequences: tuple[Consequence, ...] = field(default=())


def conditions(headroom: Headroom, site: str) -> SiteConditions:
    """Return the conditions of ``site``. Raises KeyError for one that is not in the inventory."""
    found = row_capacities(headroom, site)
    told = _ranked(_consequences(headroom, site, found))
    whole = headroom.table(ScopeKind.SITE).row(site)
    zones = headroom.fleet.zones
    here = zones.site == headroom.fleet.sites.index_by_name[site]
    cooling_left_w = (headroom.zone_capacity_w - headroom.zone_load_w)[here]
    return SiteConditions(
        site=site,
        at=headroom.at,
        answer=_answer(site, found, told),
        load_w=whole["power_load_w"],
        budget_w=whole["power_budget_w"],
        power_left_w=whole["power_headroom_w"],
        confidence=whole["power_confidence"],
        cooling_left_w=float(cooling_left_w.sum()),
        hottest_c=_known(whole["hottest_c"]),
        margin_c=_known(whole["thermal_margin_c"]),
        stale_nodes=int(whole["stale_nodes"]),
        rows=tuple(_row(each) for each in found),
        consequences=told,
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _row(room: RowCapacity) -> RowConditions:
    power, heat = room.headroom.powers[ScopeKind.RACK], room.headroom.heat[ScopeKind.RACK]
    limit = room.power_limit
    token = Token.THERMAL if room.throttles else limit.token
    throttle_s = _least(heat.throttle_in_s[room.racks])
    return RowConditions(
        row=room.row,
        racks=len(room.racks),
        gpus=len(room.gpus),
        load_w=float(power.load_w[room.racks].sum()),
        budget_w=float(power.budget_w[room.racks].sum()),
        job_w=room.job_w,
        job_limit=token or "",
        job_limit_at="" if room.throttles or limit.where is None else limit.where.name,
        job_by_power_w=room.power_w,
        job_by_heat_w=room.heat_share * room.most_w,
        hottest_c=_known(np.fmax.reduce(heat.hottest_c[room.racks], initial=np.nan)),
        margin_c=_least(heat.margin_c[room.racks]),
        steady_margin_c=_least(heat.steady_margin_c[room.racks]),
        throttle_in_s=None if throttle_s is None or np.isinf(throttle_s) else throttle_s,
        stale=bool(room.headroom.summary.racks.stale[room.racks].any()),
    )


def _least(values: Floats) -> float | None:
    return _known(float(np.fmin.reduce(values, initial=np.nan)))


def _answer(site: str, found: Sequence[RowCapacity], told: Sequence[Consequence]) -> str:
    """Say in one sentence how large a job the site takes, and how many limits are exceeded."""
    wrong = [each for each in told if each.when == "now"]
    best = max(found, key=lambda room: room.job_w, default=None)
    takes = "takes no job"
    if best is not None and best.job_w >= JOB_STEP_W:
        takes = f"takes jobs of up to {job_size(best.job_w)}, in row {best.row}"
    if wrong:
        things = "one limit is" if len(wrong) == 1 else f"{len(wrong)} limits are"
        return f"At {site} {things} exceeded. It {takes}."
    soon = [each for each in told if each.when == "soon" and each.in_s is not None]
    if soon:
        first = min(soon, key=lambda each: each.in_s or 0.0)
        return f"{site} {takes}; the first limit would be exceeded {first.claim}."
    return f"{site} {takes}. Nothing is over its limit."


# --- What follows --------------------------------------------------------------------------------


def _ranked(found: Iterator[Consequence]) -> tuple[Consequence, ...]:
    """Return the most urgent: present, then coming, then hypothetical; the worst of each first."""
    order = {"now": 0, "soon": 1, "if": 2}
    ranked = sorted(
        found,
        key=lambda each: (
            order[each.when],
            np.inf if each.in_s is None else each.in_s,
            -each.short / max(abs(each.need), 1.0),
            each.sentence,
        ),
    )
    return tuple(ranked[:MOST])


def _consequences(
    headroom: Headroom, site: str, found: Sequence[RowCapacity]
) -> Iterator[Consequence]:
    yield from _over(headroom, site)
    yield from _running_out(headroom, site)
    yield from (each for room in found for each in _heating_up(room))
    best = best_rows(found)
    yield from _would_throttle(found, best)
    yield from _would_not_fit(found, best)
    yield from _busy_links(headroom, site)


def _over(headroom: Headroom, site: str) -> Iterator[Consequence]:
    """Yield the budgets exceeded now, and the cap under which each would not be."""
    fleet, power = headroom.fleet, headroom.powers
    here = fleet.sites.index_by_name[site]
    domains = power[ScopeKind.POWER_DOMAIN]
    cases = (
        (Token.RACK_POWER, ScopeKind.RACK, fleet.racks.site, power[ScopeKind.RACK].load_w,
         power[ScopeKind.RACK].budget_w),
        (Token.FEED_POWER, ScopeKind.POWER_DOMAIN, fleet.domains.site, domains.load_w,
         domains.budget_w),
        (Token.FEED_REDUNDANCY, ScopeKind.POWER_DOMAIN, fleet.domains.site,
         headroom.failover.load_w, domains.budget_w),
        (Token.SITE_POWER, ScopeKind.SITE, np.arange(len(fleet.sites)),
         power[ScopeKind.SITE].load_w, power[ScopeKind.SITE].budget_w),
        (Token.COOLING, ScopeKind.ZONE, fleet.zones.site, headroom.zone_load_w,
         headroom.zone_capacity_w),
    )  # fmt: skip
    for token, kind, site_of, load_w, budget_w in cases:
        over = np.flatnonzero((site_of == here) & (load_w > budget_w))
        worst = over[np.argsort(budget_w[over] - load_w[over])][:MOST_OF_A_KIND]
        for row in worst.tolist():
            yield _one_over(headroom, token, kind, row, float(load_w[row]), float(budget_w[row]))


def _one_over(
    headroom: Headroom, token: Token, kind: ScopeKind, row: int, load_w: float, budget_w: float
) -> Consequence:
    scope = Scope(kind, str(names_of(headroom.fleet, kind)[row]))
    said = f"{_place(scope)} carries {of_budget(load_w, budget_w, 'W')}"
    if token is Token.FEED_REDUNDANCY:
        said = f"If {_mate(headroom, row)} fails, {said}"
    under = Under.of(headroom, token, kind, row)
    way = under.cap(budget_w - load_w, headroom.summary.gpus.load_w)
    ways = _ways(way)
    if way is not None:
        said += f"; it is within it once {way.text}"
    return Consequence(token, "now", scope, "", _sentence(said), load_w, budget_w, "W", 0.0, ways)


def _running_out(headroom: Headroom, site: str) -> Iterator[Consequence]:
    """Yield the budgets that are claimed to be exceeded, and the cap that prevents it."""
    for kind, prefix, token in (
        (ScopeKind.RACK, "power", Token.RACK_POWER),
        (ScopeKind.POWER_DOMAIN, "power", Token.FEED_POWER),
        (ScopeKind.SITE, "power", Token.SITE_POWER),
        (ScopeKind.ZONE, "cooling", Token.COOLING),
    ):
        columns = headroom.table(kind).columns
        from_s, left_w = columns[f"{prefix}_over_from_s"], columns[f"{prefix}_headroom_w"]
        soon = np.flatnonzero((columns["site"] == site) & np.isfinite(from_s) & (left_w >= 0))
        for row in soon[np.argsort(from_s[soon])][:MOST_OF_A_KIND].tolist():
            load_w, left = float(columns[f"{prefix}_load_w"][row]), float(left_w[row])
            soonest_s, latest_s, sure = (
                float(columns[f"{prefix}_over_{each}"][row])
                for each in ("from_s", "upto_s", "sure")
            )
            when = claimed(headroom.at, soonest_s, latest_s, sure)
            scope = Scope(kind, str(columns["name"][row]))
            under = Under.of(headroom, token, kind, row)
            ways = _ways(under.cap(left, headroom.powers[ScopeKind.GPU].budget_w))
            said = (
                f"{_place(scope)} would be over its {_BUDGETS[token]} {when}{_unless(ways)}:"
                f" it carries {of_budget(load_w, load_w + left, 'W')}"
            )
            yield Consequence(
                token, "soon", scope, "", _sentence(said), load_w, load_w + left, "W",
                soonest_s, ways, claim=when,
            )  # fmt: skip


def claimed(at: float, from_s: float, upto_s: float, sure: float) -> str:
    """Return the time of a claim: ``between 14:20 and 14:50 UTC (8 of 10)``.

    ``from_s`` and ``upto_s`` count from ``at`` (Unix s). ``sure`` is the share of loads that fell
    into its band: of ten so many, rounded down.
    """
    first, last = (
        datetime.fromtimestamp(at + seconds, UTC).strftime("%H:%M") for seconds in (from_s, upto_s)
    )
    return f"between {first} and {last} UTC ({int(10.0 * sure)} of 10)"


def _heating_up(room: RowCapacity) -> Iterator[Consequence]:
    """Tell which GPUs of a row throttle, or would if today's load lasted."""
    headroom = room.headroom
    hot = throttling_gpus(headroom, room.gpus)
    if not len(hot):
        yield from _over_slowdown(room)
        return
    is_now = float(headroom.gpu_heat.throttle_in_s[hot].min()) <= 0.0
    load_w = float(headroom.summary.gpus.load_w[hot].max())
    limit_w = float(limits_w(headroom, hot).min())
    ways = _ways(cap_of_row(room, headroom.summary.gpus.load_w, limit_w))
    count, verb = ("One GPU", "throttles") if len(hot) == 1 else (f"{len(hot)} GPUs", "throttle")
    happens = f"{verb} now at" if is_now else "would throttle under"
    said = f"{count} of row {room.row} {happens} today's load{_unless(ways)}"
    yield Consequence(
        Token.THERMAL, "now" if is_now else "if", None, room.row, _sentence(said),
        load_w, limit_w, "W", 0.0 if is_now else None, ways,
    )  # fmt: skip


def _over_slowdown(room: RowCapacity) -> Iterator[Consequence]:
    """Tell which racks read too hot, where too little is known of their cooling to name a cap."""
    table = room.headroom.table(ScopeKind.RACK)
    margin_c = table.columns["thermal_margin_c"][room.racks]
    over = np.flatnonzero(margin_c < 0)
    for place in over[np.argsort(margin_c[over])][:MOST_OF_A_KIND].tolist():
        scope = Scope(ScopeKind.RACK, str(table.names[room.racks[place]]))
        over_c = -float(margin_c[place])
        said = f"{_place(scope)} is {over_c:.0f} °C over the slowdown temperature of its GPUs"
        yield Consequence(
            Token.THERMAL, "now", scope, room.row, _sentence(said), over_c, 0.0, "°C", 0.0
        )


def _would_throttle(
    found: Sequence[RowCapacity], best: Sequence[RowCapacity]
) -> Iterator[Consequence]:
    """Tell how large a job may be before heat slows it down, where power would admit more."""
    for room in found:
        heat_w = room.heat_share * room.most_w
        if not room.throttles or room.power_w - heat_w < JOB_STEP_W:
            continue
        if len(throttling_gpus(room.headroom, room.gpus)):
            continue  # they throttle without any job: that is told already
        in_s = room.throttles_in_s(room.power_share)
        if np.isinf(in_s):
            continue
        loaded_w = room.gpu_w(room.power_share)
        cap_w = room.cap_w(room.power_share)
        ways = _ways(
            None if cap_w is None else cap_of_row(room, loaded_w, cap_w),
            elsewhere(best, room, heat_w),
        )
        when = f"{_after(in_s)} in row {room.row}"
        said = f"Jobs above {job_size(heat_w)} throttle {when}{_unless(ways)}"
        yield Consequence(
            Token.THERMAL, "if", None, room.row, _sentence(said), room.power_w, heat_w, "W",
            in_s, ways,
        )  # fmt: skip


def _would_not_fit(
    found: Sequence[RowCapacity], best: Sequence[RowCapacity]
) -> Iterator[Consequence]:
    """Tell how large a job may be before power or cooling ends it, where another row takes more."""
    for room in found:
        where, token = room.power_limit.where, room.power_limit.token
        if room.throttles or token is None or where is None:
            continue
        way = elsewhere(best, room, room.power_w)
        if way is None:
            continue
        ends = f"{_place(where)} has no more"
        if token is Token.FEED_REDUNDANCY:
            row = room.headroom.table(where.kind).index_by_name[where.name]
            ends = f"{_place(where)} could not carry them if {_mate(room.headroom, row)} failed"
        said = f"Jobs above {job_size(room.power_w)} do not fit into row {room.row}, since {ends}"
        if room.power_w < JOB_STEP_W:
            said = f"Row {room.row} takes no job, since {ends}"
        said += f"; row {way.row} takes jobs of up to {job_size(way.takes_w or 0.0)}"
        yield Consequence(
            token, "if", where, room.row, _sentence(said), room.most_w, room.power_w, "W",
            None, (way,),
        )  # fmt: skip


def _busy_links(headroom: Headroom, site: str) -> Iterator[Consequence]:
    columns = headroom.table(ScopeKind.LINK).columns
    used, left = columns["link_use"], columns["link_bulk_headroom_bits_per_s"]
    for row in np.flatnonzero((columns["site"] == site) & (used > BUSY_LINK)).tolist():
        scope = Scope(ScopeKind.LINK, str(columns["name"][row]))
        capacity = float(columns["link_capacity_bits_per_s"][row])
        said = f"{_place(scope)} is used to {100 * used[row]:.0f} %: "
        if left[row] > 0:
            terabyte_s = 8e12 / float(left[row])
            said += f"{quantity(float(left[row]), 'bit/s')} are left for bulk traffic,"
            said += f" so that 1 TB takes {_span(terabyte_s)}"
        else:
            said += "nothing is left for bulk traffic"
        need = capacity - float(columns["link_headroom_bits_per_s"][row])
        when = "now" if need > capacity else "if"
        yield Consequence(
            Token.LINK, when, scope, "", _sentence(said), need, capacity, "bit/s", None
        )


def _ways(*found: Way | None) -> tuple[Way, ...]:
    return tuple(each for each in found if each is not None)


# --- Words ---------------------------------------------------------------------------------------


def _sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}."


def _unless(ways: Sequence[Way]) -> str:
    return f" unless {' or '.join(way.text for way in ways)}" if ways else ""


def _place(scope: Scope) -> str:
    return f"{scope.kind.replace('_', ' ')} {scope.name}"


def _mate(headroom: Headroom, row: int) -> str:
    domains = headroom.fleet.domains
    return str(domains.paths[domains.pair[row]])


def _after(seconds: float) -> str:
    return "within a minute" if seconds < 60.0 else f"after {_span(seconds)}"


def _span(seconds: float) -> str:
    if seconds < 5400.0:
        return f"about {max(seconds / 60.0, 1.0):.0f} min"
    return f"about {seconds / 3600.0:.1f} h"
