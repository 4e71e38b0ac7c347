"""Reasons why a request may not start: needs, supply and places, in numbers.

What a gang lacks is told of its least demanding form: the fewest GPUs at the lowest cap that it
accepts. Watts are those of a placement that would do but for watts, in the group that comes closest
to it; if that placement breaks no limit, it is the answer. Where GPUs are short nothing is said of
watts: whoever holds those GPUs will leave the watts with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from admission.core.placement.candidates import CandidatePool, Selection
from admission.core.placement.cluster import Cluster
from admission.core.placement.elastic import Choice, Draw
from admission.core.placement.eligibility import Eligibility, scoped_restrictions_of
from admission.core.placement.flows import data_flows
from admission.core.placement.supply import supply_of, told
from admission.core.placement.topology import Bools, Floats, Ints
from admission.core.reasons import PRECEDENCE, Reason, ReasonToken
from admission.core.request import Locality, Request
from fleet.tables import COOLING_KINDS, LINK_KINDS
from policies.headroom.binding import balance, quantity
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction
from policies.scopes import Scope, ScopeKind

__all__ = [
    "may_have_room",
    "missed",
    "policy_reasons",
    "spec_reasons",
    "storage_reasons",
    "why_not",
]

#: A margin that every GPU keeps, to ask what there is beside heat, °C.
_ANY_MARGIN_C = -1e6
#: More than rounding makes of a sum, W; and a draw above none, to divide by.
_SPARE_W, _ANY_W = 1.0, 1e-6
#: Restrictions that are named in a sentence.
_NAMED = 2
_WAN = LINK_KINDS.index("wan")

_WITHIN = {
    Locality.NODE: "on one node",
    Locality.RACK: "in one rack",
    Locality.SWITCH_DOMAIN: "in one switch domain",
    Locality.ZONE: "in one cooling zone",
    Locality.SITE: "at one site",
    Locality.FLEET: "in the fleet",
}


# --- What no search is needed for -----------------------------------------------------------------


def spec_reasons(cluster: Cluster, request: Request) -> list[Reason]:
    """Return the errors that make a request impossible to read, such as unknown names."""
    fleet = cluster.fleet
    wrong = [
        f"there is no site {name!r}"
        for name in request.sites
        if name not in fleet.sites.index_by_name
    ]
    if request.data_site and request.data_site not in fleet.sites.index_by_name:
        wrong.append(f"its data is at {request.data_site!r}, and there is no such site")
    if request.storage and request.storage not in fleet.storage.index_by_path:
        wrong.append(f"there is no storage endpoint {request.storage!r}")
    wrong += [f"{name!r} is no kind of cooling" for name in request.cooling
              if name not in COOLING_KINDS]  # fmt: skip
    if not 1 <= request.min_gpus <= request.gpus:
        wrong.append(f"it wants {request.gpus} GPUs, and {request.min_gpus} at least")
    step = request.gpus_per_node
    if step is not None and (step < 1 or request.gpus // step * step < request.min_gpus):
        wrong.append(
            f"no number of GPUs from {request.min_gpus} to {request.gpus} is a multiple of {step},"
            " which it wants on each node"
        )
    return [Reason(ReasonToken.SPEC_INVALID, 1.0, 0.0, "", None, f"{each}") for each in wrong]


def policy_reasons(cluster: Cluster, request: Request) -> list[Reason]:
    """Return the restrictions on its class, itself or its storage that keep it from starting."""
    scoped = scoped_restrictions_of(cluster.constants)
    if not scoped.by_scope:
        return []
    closed = scoped.on(request, RestrictionKind.NO_NEW_LAUNCHES)
    held = scoped.on(request, RestrictionKind.HOLD_FOR_REVIEW)
    found = [
        Reason(ReasonToken.RESTRICTED, 1.0, 0.0, "", each.scope,
               f"no job starts in {each.scope}: {each.reason}", {"restrictions": [each.id]})
        for each in closed
    ]  # fmt: skip
    found += [
        Reason(ReasonToken.ON_HOLD, 1.0, 0.0, "", each.scope,
               f"{each.scope} waits for a person: {each.reason}", {"restrictions": [each.id]})
        for each in held
    ]  # fmt: skip
    if request.cross_site_checkpoint:
        found += [
            Reason(ReasonToken.RESTRICTED, 1.0, 0.0, "", each.scope,
                   f"its checkpoints have to leave the site, and those of {each.scope} may not:"
                   f" {each.reason}", {"restrictions": [each.id]})
            for each in scoped.on(request, RestrictionKind.NO_CROSS_SITE_CHECKPOINT)
        ]  # fmt: skip
    return found


# --- After a search in vain -----------------------------------------------------------------------


def why_not(eligibility: Eligibility, wanting: list[Reason]) -> Choice | list[Reason]:
    """Return every reason why a request found no place, or the place that its search missed.

    ``wanting`` are reasons that are known already.
    """
    inventory = _inventory(eligibility)
    never = _never(eligibility, inventory)
    if never or inventory is None:
        return never
    lack = _Lack(eligibility, inventory.most_open)
    found = lack.found()
    if not isinstance(found, list):
        missed, found = found, []
        if not wanting:
            congested = eligibility.congested(missed.selection.by_node)
            if not congested:
                return missed
            found = [_link_reason(eligibility, row, bits) for row, bits in congested.items()]
    return sorted([*found, *wanting], key=lambda each: PRECEDENCE[each.token])


def missed(eligibility: Eligibility) -> Choice | None:
    """Return the place that a search has missed, if any: :func:`why_not` without the reasons."""
    inventory = _inventory(eligibility)
    if inventory is None or _never(eligibility, inventory):
        return None
    found = _Lack(eligibility, inventory.most_open).choice()
    if found is None or eligibility.congested(found.selection.by_node):
        return None
    return found


def may_have_room(cluster: Cluster, request: Request) -> bool:
    """Say whether racks open to a request have the GPUs and watts for it, each by itself. Quick.

    False: it has no place, however it were looked for. True says nothing.
    """
    eligibility = Eligibility.of(cluster, request)
    return any(_has_room(eligibility, draw) for draw in eligibility.draws)


def _has_room(eligibility: Eligibility, draw: Draw) -> bool:
    cluster, topology = eligibility.cluster, eligibility.cluster.topology
    constants, nodes = cluster.constants, cluster.fleet.nodes
    racks, level = len(cluster.fleet.racks), eligibility.request.required
    free = np.bincount(nodes.rack, cluster.node_free[draw.kind] * eligibility.open, racks)
    more_w = np.maximum(draw.lowest_w - constants.rack_most_base_w, 0.0)
    unit_w = np.maximum(constants.rack_least_factor * more_w, _ANY_W)
    fit = np.minimum(free, np.floor((np.maximum(cluster.admit_w, 0.0) + _SPARE_W) / unit_w))
    need = eligibility.request.least_gpus
    if level <= Locality.RACK:
        return bool(fit.max(initial=0.0) >= need)
    if level is Locality.FLEET or (
        level is Locality.SWITCH_DOMAIN and topology.domains_split_racks
    ):
        return bool(fit.sum() >= need)
    groups = topology.group_count[level]
    by_group = np.bincount(topology.rack_groups[level] + 1, fit, groups + 1)[1:]
    return bool(by_group.max(initial=0.0) >= need)


@dataclass(frozen=True)
class _Inventory:
    """The supply that a fleet has for a request, free or not: the same whoever comes and goes."""

    is_named: bool
    is_cooled: bool
    #: GPUs of one model in the group that has most of them
    best: int
    #: the draw on the model of which most are where jobs begin
    most_open: Draw


def _inventory(eligibility: Eligibility) -> _Inventory | None:
    """Return the supply of the fleet for a request, made once for all that want it alike.

    None where it has no GPU of any of its models.
    """
    request, draws = eligibility.request, eligibility.draws
    if not draws:
        return None
    memo, key = eligibility.cluster.constants.memo, (
        "inventory", eligibility.key, draws, request.gpus_per_node, request.required,
    )  # fmt: skip
    found = memo.get(key)
    if not isinstance(found, _Inventory):
        cooled = [_all(eligibility, draw, eligibility.cooled) for draw in draws]
        is_cooled, most_open = any(gpus.any() for gpus in cooled), draws[0]
        if len(draws) > 1:
            most_open = max(draws, key=lambda draw: _total(eligibility, draw, eligibility.open))
        found = memo[key] = _Inventory(
            is_cooled or any(_total(eligibility, draw, eligibility.named) for draw in draws),
            is_cooled,
            max(_best(eligibility, gpus)[0] for gpus in cooled),
            most_open,
        )
    return found


def _never(eligibility: Eligibility, inventory: _Inventory | None) -> list[Reason]:
    """Return why not even an empty fleet could place it."""
    request = eligibility.request
    models = ", ".join(request.models) or "any model"
    need = float(request.min_gpus)
    if inventory is None or not inventory.is_named:
        where = _where(request)
        sentence = f"needs {request.told(request.min_gpus)} of {models}; there are none{where}"
        return [Reason(ReasonToken.HARDWARE_MISMATCH, need, 0.0, request.unit, None, sentence)]
    if not inventory.is_cooled:
        wanted = " or ".join(request.cooling)
        sentence = f"needs {wanted} cooling; no GPU of {models} has it{_where(request)}"
        return [Reason(ReasonToken.COOLING_MISMATCH, need, 0.0, request.unit, None, sentence)]
    best, least = inventory.best, request.least_gpus
    if best < least:
        within = _WITHIN[request.required]
        sentence = f"needs {request.told(least)} {within}; the most there are is {best}"
        if request.gpus_per_node:
            sentence += f", counting {request.gpus_per_node} of a node"
        return [Reason(
            ReasonToken.LOCALITY_UNSATISFIABLE, float(least), float(best), request.unit,
            None, sentence,
        )]  # fmt: skip
    return []


def _where(request: Request) -> str:
    if request.storage:
        return f" at the site of {request.storage}"
    if request.nodes:
        return f" among the {len(request.nodes)} nodes that it may use"
    if request.artifact_sites:
        return f" at {', '.join(request.artifact_sites)}, where the artifacts are that it takes"
    if request.executor:
        return f" in the scheduler {request.executor}"
    return f" at {', '.join(request.sites)}" if request.sites else " in the inventory"


def _all(eligibility: Eligibility, draw: Draw, nodes: Bools) -> Ints:
    return np.asarray(eligibility.cluster.topology.node_gpus_by_kind[draw.kind] * nodes)


def _total(eligibility: Eligibility, draw: Draw, nodes: Bools) -> int:
    return int(_all(eligibility, draw, nodes).sum())


def _best(eligibility: Eligibility, gpus: Ints) -> tuple[int, int]:
    """Return how many GPUs the group with the most of them has, and which one that is."""
    step, widest = eligibility.request.gpus_per_node, eligibility.request.required
    if step is not None:
        gpus = np.where(gpus >= step, step, 0)
    if widest is Locality.FLEET:
        return int(gpus.sum()), 0
    groups = eligibility.cluster.topology.groups
    total = gpus if widest is Locality.NODE else np.bincount(groups[widest], gpus)
    group = int(total.argmax()) if len(total) else 0
    return int(total[group]) if len(total) else 0, group


class _Lack:
    """The shortage of a request on GPUs of one model."""

    def __init__(self, eligibility: Eligibility, draw: Draw) -> None:
        self._eligibility, self._cluster = eligibility, eligibility.cluster
        self._draw, self._need = draw, eligibility.request.least_gpus
        self._nodes, _ = eligibility.node_masks[-1]
        self._within = _WITHIN[eligibility.request.required]
        self._needs = f"needs {eligibility.request.told(self._need)}"
        self._evidence: dict[str, Any] = {
            "at": self._cluster.now,
            "gpus": self._need,
            "gpu_w": draw.lowest_w,
            "model": str(
                self._cluster.fleet.models.names[self._cluster.topology.gpu_models[draw.kind]]
            ),
        }

    def found(self) -> Choice | list[Reason]:
        """Return what is lacking, or the choice that lacks nothing.

        Found once for all requests whose least demanding form is the same, until the cluster
        changes.
        """
        request, draw, known = self._eligibility.request, self._draw, self._cluster.scratch
        is_named = bool(scoped_restrictions_of(self._cluster.constants).by_scope)
        key = (
            "lack", self._eligibility.key, self._need, draw.kind, draw.lowest_w,
            request.gpus_per_node, request.required, request.thermal_margin_c, request.balanced,
            request.cross_site_bits_per_s, is_named and (request.job_class, request.job),
        )  # fmt: skip
        found: list[Reason] | None = known.get(key)
        if found is None:
            new = self.gpus() or self.watts()
            if not isinstance(new, list):
                return new
            found = known[key] = new
        return found

    def choice(self) -> Choice | None:
        """Return the choice that lacks nothing, if there is one."""
        pool = self._pool()
        if pool.free_gpus.best(self._eligibility.request.required)[0] < self._need:
            return None
        selection = self._regardless(pool)
        if selection is None or len(self._short_of(pool, selection)[0]):
            return None
        return self._chosen(pool, selection)

    # --- GPUs -------------------------------------------------------------------------------------

    def gpus(self) -> list[Reason]:
        """Return why there are not enough GPUs close enough together, cool enough and open."""
        eligibility, level = self._eligibility, self._eligibility.request.required
        if self._pool().free_gpus.best(level)[0] >= self._need:
            return []
        free = self._cluster.node_free[self._draw.kind]
        now = free * self._nodes
        stale = self._stale(now)
        found = [*self._closed(free), *stale, *self._unreached(free, now)]
        best, _ = self._best(now)
        if best < self._need:
            # What is closed, silent or out of reach is no shortage, where it would be enough.
            everywhere = free * eligibility.cooled
            if found and (stale or self._best(everywhere)[0] >= self._need):
                return found
            return [*found, self._too_few(everywhere if found else now)]
        capped = self._pool(_ANY_MARGIN_C).free_gpus.usable
        if self._best(capped)[0] < self._need:
            return [*found, self._capped(now, capped)]
        return [*found, *self._too_hot(capped)]

    def _best(self, gpus: Ints) -> tuple[int, int]:
        return _best(self._eligibility, gpus)

    def _would(self, gpus: Ints, now: Ints) -> bool:
        """Say whether ``gpus`` would be enough while those free ``now`` are not."""
        return self._best(gpus)[0] >= self._need > self._best(now)[0]

    def _reason(
        self, token: ReasonToken, have: float, scope: Scope | None, sentence: str, **more: Any
    ) -> Reason:
        evidence = {**self._evidence, **more}
        unit = self._eligibility.request.unit
        return Reason(token, float(self._need), have, unit, scope, sentence, evidence)

    def _closed(self, free: Ints) -> list[Reason]:
        """Return the restrictions without which there would be enough GPUs."""
        eligibility = self._eligibility
        if not self._cluster.constants.any_closed and not eligibility.is_local:
            return []
        everywhere = _all(eligibility, self._draw, np.ones(len(free), dtype=bool))
        found = []
        for token, kinds, before, after in (
            (ReasonToken.RESTRICTED, (RestrictionKind.NO_NEW_LAUNCHES, RestrictionKind.DRAIN,
             RestrictionKind.LOCAL_ONLY, RestrictionKind.NO_CROSS_SITE_CHECKPOINT),
             eligibility.cooled, eligibility.launching),
            (ReasonToken.ON_HOLD, (RestrictionKind.HOLD_FOR_REVIEW,),
             eligibility.launching, eligibility.open),
        ):  # fmt: skip
            left = self._best(everywhere * after)[0]
            shut = left < self._need and self._best(everywhere * before)[0] >= self._need
            if not shut and not self._would(free * before, free * after):
                continue
            restrictions = list(self._restrictions(kinds, before & ~after))
            have = min(left, self._best(free * after)[0])
            sentence = (
                f"{self._needs} {self._within}; {_names(restrictions)} leave"
                f"{'s' if len(restrictions) == 1 else ''} {have}: short {self._need - have}"
            )
            scope = restrictions[0].scope if restrictions else None
            found.append(
                self._reason(
                    token, float(have), scope, sentence, restrictions=[s.id for s in restrictions]
                )
            )
        return found

    def _restrictions(
        self, kinds: tuple[RestrictionKind, ...], nodes: Bools
    ) -> Iterable[ActiveRestriction]:
        in_force, fleet = self._cluster.constants.in_force, self._cluster.fleet
        mine = scoped_restrictions_of(self._cluster.constants)
        for each in in_force.restrictions:
            if each.kind in kinds and (
                each.scope.kind is ScopeKind.LINK
                or nodes[in_force.node_rows(fleet, each.scope)].any()
                or each in mine.on(self._eligibility.request, each.kind)
            ):
                yield each

    def _stale(self, now: Ints) -> list[Reason]:
        silent = self._cluster.constants.silent[self._draw.kind] * self._eligibility.open
        if not self._would(now + silent, now):
            return []
        have, rows = self._best(now)[0], np.flatnonzero(silent)
        node = Scope(ScopeKind.NODE, str(self._cluster.fleet.nodes.names[rows[0]]))
        sentence = (
            f"{self._needs} {self._within}; {have} are free, and {int(silent.sum())} on"
            f" {len(rows)} {_nodes(len(rows))} are not read, such as on {node}"
        )
        return [self._reason(ReasonToken.TELEMETRY_STALE, float(have), node, sentence)]

    def _unreached(self, free: Ints, now: Ints) -> list[Reason]:
        """Return the link that its data would have to take, where only that is in the way."""
        eligibility = self._eligibility
        if not eligibility.carries or not self._would(free * eligibility.open, now):
            return []
        by_site = np.bincount(
            self._cluster.topology.node_site,
            free * (eligibility.open & ~eligibility.reached),
            len(self._cluster.fleet.sites),
        )
        # Short of sites that are kept to themselves it may be, and not of a link.
        if not by_site.any():
            return []
        return [self._link(str(self._cluster.fleet.sites.names[int(by_site.argmax())]))]

    def _link(self, site: str) -> Reason:
        eligibility, cluster = self._eligibility, self._cluster
        request, rooms = eligibility.request, cluster.link_room_bits_per_s
        try:
            flows = data_flows(cluster.topology, (site,), request)
        except KeyError:
            scope = Scope(ScopeKind.SITE, site)
            sentence = f"no WAN link leads from {request.data_site}, where its data is, to {site}"
            need = request.cross_site_bits_per_s
            return Reason(ReasonToken.LINK, need, 0.0, "bit/s", scope, sentence)
        closed, heard = cluster.constants.link_closed, cluster.constants.link_heard
        row = min(flows, key=lambda link: (not closed[link], heard[link], rooms[link]))
        return _link_reason(eligibility, row, flows[row])

    def _too_few(self, now: Ints) -> Reason:
        total, best = int(now.sum()), self._best(now)[0]
        step = self._eligibility.request.gpus_per_node
        whole = f", counting {step} of a node" if step else ""
        supply = supply_of(self._eligibility, self._draw, now)
        if total < self._need:
            sentence = f"{self._needs}, and {told(supply)}: short {self._need - total}"
            return self._reason(
                ReasonToken.GPU_SHORTAGE, float(total), None, sentence, supply=supply
            )
        sentence = (
            f"{self._needs} {self._within}; {told(supply)}, and at most {best}"
            f" {self._within}{whole}: short {self._need - best}"
        )
        return self._reason(
            ReasonToken.TOPOLOGY_UNSATISFIABLE, float(best), None, sentence, supply=supply
        )

    def _capped(self, now: Ints, left: Ints) -> Reason:
        constants = self._cluster.constants
        nodes = (now > 0) & (constants.least_cap_w < self._draw.lowest_w)
        restrictions = list(self._restrictions((RestrictionKind.POWER_CAP_W,), nodes))
        have_w = float(constants.least_cap_w[nodes].max(initial=0.0))
        scope = restrictions[0].scope if restrictions else None
        sentence = (
            f"needs {quantity(self._draw.lowest_w, 'W')} for each GPU, and"
            f" {_names(restrictions)} leave{'s' if len(restrictions) == 1 else ''}"
            f" {quantity(have_w, 'W')}: only {self._best(left)[0]} of {self._need} GPUs"
            f" {self._within} may draw more"
        )
        evidence = {**self._evidence, "restrictions": [each.id for each in restrictions]}
        return Reason(
            ReasonToken.RESTRICTED, self._draw.lowest_w, have_w, "W", scope, sentence, evidence
        )

    # --- Heat -------------------------------------------------------------------------------------

    def _too_hot(self, free: Ints) -> list[Reason]:
        """Return the margin that the coolest GPUs keep, and the watts that they lack."""
        pool = self._pool(_ANY_MARGIN_C)
        watts = self.watts(pool)
        return [self._heat(pool, free), *(watts if isinstance(watts, list) else [])]

    def _heat(self, pool: CandidatePool, free: Ints) -> Reason:
        cluster, request = self._cluster, self._eligibility.request
        nodes = np.flatnonzero(self._in_group(free, self._best(free)[1]) & (free > 0))
        gpus = cluster.topology.gpu_rows[nodes][pool.good_gpus(nodes)]
        constants = cluster.constants
        settled_c = (
            constants.ambient_c[gpus] + constants.resistance_c_per_w[gpus] * self._draw.lowest_w
        )
        margin_c = constants.limit_c[gpus] - settled_c
        order = np.argsort(-margin_c, kind="stable")
        last = order[self._need - 1]
        have_c, need_c = float(margin_c[last]), request.thermal_margin_c
        rack = cluster.fleet.nodes.rack[cluster.fleet.gpus.node[gpus[last]]]
        scope = Scope(ScopeKind.RACK, str(cluster.fleet.racks.paths[rack]))
        heat = balance(need_c, have_c, "°C")
        sentence = (
            f"{self._needs} that settle {heat.told(heat.need)} or more below their"
            f" slowdown at {quantity(self._draw.lowest_w, 'W')}; of those free {self._within} the"
            f" last one needed, in {scope}, settles {heat.told(abs(heat.have))}"
            f" {'below' if have_c >= 0 else 'above'} it: short {heat.told(heat.short)}"
        )
        return Reason(ReasonToken.THERMAL, need_c, have_c, "°C", scope, sentence, self._evidence)

    def _in_group(self, gpus: Ints, group: int) -> Bools:
        widest = self._eligibility.request.required
        if widest is Locality.FLEET:
            return np.ones(len(gpus), dtype=bool)
        if widest is Locality.NODE:
            return np.asarray(np.arange(len(gpus)) == group)
        return np.asarray(self._cluster.topology.groups[widest] == group)

    # --- Watts ------------------------------------------------------------------------------------

    def watts(self, pool: CandidatePool | None = None) -> Choice | list[Reason]:
        """Return the limits that are short in a pool, or the choice that breaks none."""
        pool = pool or self._pool()
        selection = self._regardless(pool)
        if selection is None:
            return [self._uneven(pool.free_gpus.usable)]
        rows, need_w = self._short_of(pool, selection)
        return self._broken(rows, need_w) if len(rows) else self._chosen(pool, selection)

    def _regardless(self, pool: CandidatePool) -> Selection | None:
        """Return where it would stand if no limit were short."""
        request = self._eligibility.request
        closest = self._eligibility.closest(self._draw, self._need)
        group = self._closest_group(pool)
        return pool.without_limits(self._need, closest, request.required, group)

    def _short_of(self, pool: CandidatePool, selection: Selection) -> tuple[Ints, Floats]:
        """Return the limits that it would break there, with the need at each, W."""
        nodes, count, base_w = pool.drawn(selection)
        constants, cluster = self._cluster.constants, self._cluster
        more_w = count * pool.gpu_w - base_w
        added_w = constants.factor[nodes] * np.maximum(more_w, 0.0) + cluster.first_w(nodes)
        # Half of what rounding up may add: so a placement that is found is also held.
        return cluster.short_of(nodes, added_w + 1.0 / 1024.0)

    def _chosen(self, pool: CandidatePool, selection: Selection) -> Choice:
        capped = pool.gpu_w < self._draw.peak_w
        speed = self._draw.speed(pool.gpu_w)
        return Choice(pool, selection, pool.gpu_w if capped else None, speed)

    def _closest_group(self, pool: CandidatePool) -> int:
        """Return the group with enough GPUs that by its watts could take the most of them."""
        widest, fleet = self._eligibility.request.required, self._cluster.fleet
        if widest is Locality.FLEET:
            return 0
        if widest is Locality.NODE:
            nodes = pool.free_gpus.nodes
            fit = np.clip(self._cluster.admit_w[fleet.nodes.rack[nodes]], -1.0, 1e9)
            enough = pool.free_gpus.usable[nodes] >= self._need
            return int(nodes[np.where(enough, fit.astype(np.int64), -2).argmax()])
        enough = pool.free_gpus.by_group(widest) >= self._need
        return int(np.where(enough, pool.group_fit(widest), -2).argmax())

    def _uneven(self, usable: Ints) -> Reason:
        """Return the refusal of GPUs that are enough, but not in equal parts."""
        have = self._best(usable)[0]
        sentence = (
            f"{self._needs} {self._within}, the same of each part; {have} are free there,"
            " and not evenly enough"
        )
        # What there is of even parts is not counted: one GPU less at the most.
        return self._reason(
            ReasonToken.TOPOLOGY_UNSATISFIABLE, float(self._need - 1), None, sentence, free=have
        )

    def _broken(self, rows: Ints, need_w: Any) -> list[Reason]:
        """Return the shortest limit of each kind."""
        worst: dict[ReasonToken, tuple[float, int, float]] = {}
        short_w = need_w - self._cluster.room_w[rows]
        for row, need, short in zip(rows.tolist(), need_w.tolist(), short_w.tolist(), strict=True):
            token = self._cluster.topology.limit(row)[0].token
            if token not in worst or short > worst[token][0]:
                worst[token] = (short, row, need)
        found = [self._limit(token, row, need) for token, (_, row, need) in worst.items()]
        return sorted(found, key=lambda each: PRECEDENCE[each.token])

    def _limit(self, token: ReasonToken, row: int, need_w: float) -> Reason:
        scope, what = self._cluster.topology.named(row)
        have_w = self._cluster.room_w.item(row)
        sentence = _sentence(need_w, have_w, "W", what)
        return Reason(token, need_w, have_w, "W", scope, sentence, self._evidence)

    def _pool(self, margin_c: float | None = None) -> CandidatePool:
        request = self._eligibility.request
        if margin_c is not None:
            request = replace(request, thermal_margin_c=margin_c)
        return CandidatePool.of(
            self._cluster, request, self._draw.kind, self._draw.lowest_w, self._nodes
        )


def _link_reason(eligibility: Eligibility, row: int, bits_per_s: float) -> Reason:
    """Return why a link does not carry the traffic of its data or of its collectives."""
    cluster, constants = eligibility.cluster, eligibility.cluster.constants
    have = float(cluster.link_room_bits_per_s[row])
    scope = Scope(ScopeKind.LINK, str(cluster.fleet.links.names[row]))
    token, text = ReasonToken.LINK, _sentence(bits_per_s, have, "bit/s", f"link {scope.name}")
    if constants.link_closed[row]:
        token, have = ReasonToken.RESTRICTED, 0.0
        text = f"its data would take link {scope.name}, and a restriction keeps jobs off it"
    elif not constants.link_heard[row] and cluster.fleet.links.kind[row] == _WAN:
        token, have = ReasonToken.TELEMETRY_STALE, 0.0
        text = f"its data would take link {scope.name}, of which nothing was ever read"
    return Reason(token, bits_per_s, have, "bit/s", scope, text, {"at": cluster.now})


def storage_reasons(eligibility: Eligibility) -> list[Reason]:
    """Return why its storage endpoint lacks the bandwidth."""
    request, cluster = eligibility.request, eligibility.cluster
    row = cluster.fleet.storage.index_by_path.get(request.storage)
    if row is None:
        return []
    need, have = request.storage_bytes_per_s, float(cluster.storage_room_bytes_per_s[row])
    if have >= need:
        return []
    scope = Scope(ScopeKind.STORAGE, request.storage)
    sentence = _sentence(need, have, "byte/s", f"storage {request.storage}")
    return [Reason(ReasonToken.STORAGE, need, have, "byte/s", scope, sentence, {"at": cluster.now})]


def _sentence(need: float, have: float, unit: str, where: str) -> str:
    found = balance(need, have, unit)
    left = f"has {found.told(found.have)}" if have >= 0 else f"is {found.told(-found.have)} over"
    return (
        f"needs {found.told(found.need)} on {where}, which {left}: short {found.told(found.short)}"
    )


def _names(restrictions: list[ActiveRestriction]) -> str:
    """Name restrictions: "no_new_launches on rack oslo/A01 (too hot) and 3 more"."""
    named = [f"{each.kind} on {each.scope} ({each.reason})" for each in restrictions[:_NAMED]]
    if len(restrictions) > _NAMED:
        named.append(f"{len(restrictions) - _NAMED} more")
    return " and ".join(named) or "restrictions"


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"
