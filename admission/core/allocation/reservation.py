"""Power reserved for admitted jobs: their peak at first, later what was learned of their draw.

An *allocation* is one node's part of one attempt; arrays have a row for each. It reserves its peak
until it has been read for the warm-up, and it or others of its project and image have been seen at
work. From there it comes down to the 99th percentile of what they drew, with a margin on top, and
is never under what it draws now. What falls silent is back at its peak. That is what a node
reserves; racks, power domains and sites reserve the joint peak of the gangs on them
(``admission.core.allocation.joint``). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from admission.core.allocation import joint
from admission.core.allocation.joint import Learned, Parts
from fleet.groups import sum_by
from fleet.tables import FleetArrays
from policies.headroom.inputs import Reservations, Steps
from policies.scopes import ScopeKind
from telemetry.summary import FleetSummary

__all__ = [
    "BIN_EDGES_W",
    "AllocationArrays",
    "Drawn",
    "Reserved",
    "Rules",
    "Traffic",
    "drawn",
    "noted",
    "quantile_w",
    "read_for_s",
    "reserve",
    "reserved_w",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: What is read so soon after a start is of what stood there before, s: schedulers tell starts in
#: whole seconds, and prologs take their time.
_BEGUN_AFTER_S = 5.0
#: Upper edges of the bins in which draws are counted, W for each GPU, its part of the host with it.
#: What is above the last but one has no bound, and so is never reserved less than its peak.
BIN_EDGES_W: Floats = np.append(np.arange(25.0, 2401.0, 25.0), np.inf)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How fast reservations decay, and to which quantile of the measured draw."""

    #: read for so long, s, an attempt has shown what it draws
    warm_up_s: float = 300.0
    #: what is reserved above its aim then halves in so many s
    halves_in_s: float = 120.0
    quantile: float = 0.99
    #: on top of the quantile, as a share of it
    margin: float = 0.1
    #: a reading from so long ago counts half, s
    forgets_in_s: float = 7200.0
    #: a job draws its peak so long after its start, s
    ramp_s: float = 60.0


@dataclass(frozen=True, eq=False)
class Traffic:
    """Traffic on links or storage endpoints: rows of these, of allocations, and the rate."""

    on: Ints
    allocation: Ints
    rate: Floats

    @staticmethod
    def none() -> Traffic:
        """No traffic is known."""
        return Traffic(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


@dataclass(frozen=True, eq=False, kw_only=True)
class AllocationArrays:
    """Allocations as arrays with one row each, and statistics of their measured draw.

    ``gpu`` and ``gpu_allocation`` have a place for each GPU that is held. Times are Unix
    seconds, NaN where it has not begun, or nobody knows when it ends.
    """

    node: Ints
    peak_w: Floats
    #: how many GPUs of the node it has
    gpus: Ints
    started_at: Floats
    expected_end_at: Floats
    #: 99th percentile of what it drew, W for each GPU; NaN: nothing was read
    p99_w: Floats
    #: for how long it was read, s
    read_s: Floats
    #: codes of its attempt, and of the project and image that its draw is learned by
    gang: Ints
    kind: Ints
    #: what was learned of its draw
    learned: Learned
    gpu: Ints
    gpu_allocation: Ints
    #: bit/s over the WAN, and byte/s of storage
    links: Traffic
    storage: Traffic

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The draw of each allocation now, with its part of the host, W.

    ``read``: all of its GPUs are read fresh, and were read since it began.
    """

    watts: Floats
    read: Bools


@dataclass(frozen=True, eq=False)
class Reserved:
    """The draw and reservation of each allocation, W, and what they come to on the fleet.

    ``shares_w`` is what of the joint reservation of its budgets is due to each: what is free again
    when it ends.
    """

    drawn: Drawn
    watts: Floats
    shares_w: Floats
    fleet: Reservations


# --- What was drawn ------------------------------------------------------------------------------


def noted(seconds: Floats, watts: Floats, known: Bools, for_s: Floats, rules: Rules) -> Floats:
    """Return seconds by bin after ``for_s`` more, in the rows ``known`` at ``watts`` for each GPU.

    ``seconds`` is rows by bins, the others have a value for each row.
    """
    found: Floats = seconds * 0.5 ** (for_s[:, None] / rules.forgets_in_s)
    rows = np.flatnonzero(known)
    found[rows, np.searchsorted(BIN_EDGES_W, watts[rows], side="left")] += for_s[rows]
    return found


def read_for_s(seconds: Floats) -> Floats:
    """Return for how long each row was read, with older readings counting less."""
    total: Floats = seconds.sum(axis=1)
    return total


def quantile_w(seconds: Floats, share: float) -> Floats:
    """Return the quantile ``share`` of the draw of each row over time, W for each GPU.

    The upper edge of its bin; NaN where nothing was read.
    """
    sums = np.cumsum(seconds, axis=1)
    total = sums[:, -1]
    # A share of sums of floats: what rounding takes away must not lead past the last bin.
    place = (sums < share * total[:, None]).sum(axis=1)
    return np.where(total > 0, BIN_EDGES_W[np.minimum(place, len(BIN_EDGES_W) - 1)], np.nan)


def drawn(held: AllocationArrays, fleet: FleetArrays, summary: FleetSummary) -> Drawn:
    """Return the draw of each allocation: its GPUs and their part of the host."""
    count, gpus = len(held), summary.gpus
    own_w = sum_by(gpus.load_w[held.gpu], held.gpu_allocation, count)
    since = (held.started_at + _BEGUN_AFTER_S)[held.gpu_allocation]
    is_own = gpus.read[held.gpu] & (gpus.ts[held.gpu] >= since)
    unread = sum_by(~is_own, held.gpu_allocation, count)
    gpus_w = sum_by(gpus.load_w, fleet.gpus.node, len(fleet.nodes))
    host_w = np.maximum(summary.nodes.load_w - gpus_w, 0.0)
    part = _gpus_of(held, fleet) / np.maximum(fleet.node_gpus[held.node], 1)
    return Drawn(own_w + part * host_w[held.node], unread == 0)


def _gpus_of(held: AllocationArrays, fleet: FleetArrays) -> Floats | Ints:
    """Return how many GPUs each allocation has, slices counted by their shares."""
    if fleet.parts is None:
        return held.gpus
    return sum_by(fleet.parts.share[held.gpu], held.gpu_allocation, len(held))


# --- What is reserved ----------------------------------------------------------------------------


def reserved_w(held: AllocationArrays, seen: Drawn, rules: Rules) -> Floats:
    """Return the reservation of each allocation, W."""
    warm_for_s = held.read_s - rules.warm_up_s
    shown = seen.read & ~np.isnan(held.p99_w) & (warm_for_s >= 0)
    shown &= held.learned.samples > 0.0
    high_w = np.fmax(held.p99_w, held.learned.high_w) * held.gpus
    aim_w = np.fmin((1.0 + rules.margin) * high_w, held.peak_w)
    left = 0.5 ** (np.maximum(warm_for_s, 0.0) / rules.halves_in_s)
    down_w = aim_w + (held.peak_w - aim_w) * left
    return np.maximum(np.where(shown, down_w, held.peak_w), seen.watts)


def reserve(
    held: AllocationArrays, fleet: FleetArrays, summary: FleetSummary, *, now: float, rules: Rules
) -> Reserved:
    """Return the reservations at ``now`` (Unix s).

    Of a node with allocations it is what these reserve and what else is drawn there. Of a rack
    there is nothing to add: its load, which a meter may show, has what its other nodes draw.
    """
    seen = drawn(held, fleet, summary)
    watts = reserved_w(held, seen, rules)
    to_come_w, shares_w = _joint(held, fleet, seen, watts)
    nodes = len(fleet.nodes)
    others_w = np.maximum(summary.nodes.load_w - sum_by(seen.watts, held.node, nodes), 0.0)
    has_any = sum_by(np.ones(len(held)), held.node, nodes) > 0
    on_fleet = Reservations(
        rack_w=np.zeros(len(fleet.racks)),
        node_w=np.where(has_any, sum_by(watts, held.node, nodes) + others_w, 0.0),
        link_bits_per_s=_rates(held.links, _is_new(held, rules), len(fleet.links)),
        all_link_bits_per_s=_rates(held.links, np.ones(len(held), bool), len(fleet.links)),
        # No reading says what an endpoint carries: all that use it count.
        storage_bytes_per_s=_rates(held.storage, np.ones(len(held), bool), len(fleet.storage)),
        steps=_steps(held, fleet, seen, watts, now, rules),
        to_come_w=to_come_w,
    )
    return Reserved(seen, watts, shares_w, on_fleet)


def _joint(
    held: AllocationArrays, fleet: FleetArrays, seen: Drawn, watts: Floats
) -> tuple[dict[ScopeKind, Floats], Floats]:
    """Return what budgets reserve beyond what is drawn, and the share of each allocation in it.

    What was not seen at work reserves its own peak on top of what the others draw now: that these
    draw more than on average makes no room for it.
    """
    parts = Parts(
        budget=held.node,
        gang=held.gang,
        kind=held.kind,
        drawn_w=seen.watts,
        mean_w=held.learned.mean_w * held.gpus,
        high_w=held.learned.high_w * held.gpus,
        deviation_w=held.learned.deviation_w * held.gpus,
        peak_w=np.maximum(held.peak_w, seen.watts),
        samples=np.where(seen.read, held.learned.samples, 0.0),
    )
    found: dict[ScopeKind, Floats] = {}
    for kind, on, count in (
        (ScopeKind.RACK, joint.on_racks(parts, fleet), len(fleet.racks)),
        (ScopeKind.POWER_DOMAIN, joint.on_domains(parts, fleet), len(fleet.domains)),
        (ScopeKind.SITE, joint.on_sites(parts, fleet), len(fleet.sites)),
    ):
        drawn_w = sum_by(on.drawn_w, on.budget, count)
        unseen_w = np.where(on.samples > 0.0, 0.0, on.peak_w - on.drawn_w)
        least_w = sum_by(unseen_w, on.budget, count)
        found[kind] = np.maximum(joint.joint_peak_w(on, count) - drawn_w, least_w)
    rack = fleet.nodes.rack[held.node]
    alone_w = watts - seen.watts
    together_w = sum_by(alone_w, rack, len(fleet.racks))[rack]
    share = np.divide(
        found[ScopeKind.RACK][rack], together_w, out=np.ones(len(held)), where=together_w > 0.0
    )
    return found, seen.watts + np.minimum(share, 1.0) * alone_w


def _is_new(held: AllocationArrays, rules: Rules) -> Bools:
    """Say of each allocation whether its traffic is not in the readings of links yet."""
    return np.isnan(held.started_at) | (held.read_s < rules.warm_up_s)


def _rates(traffic: Traffic, counts: Bools, places: int) -> Floats:
    rows = counts[traffic.allocation]
    return sum_by(traffic.rate[rows], traffic.on[rows], places)


def _steps(
    held: AllocationArrays, fleet: FleetArrays, seen: Drawn, watts: Floats, now: float, rules: Rules
) -> Steps:
    """Return the known changes of load: draws yet to ramp up, and jobs that will end."""
    rack = fleet.nodes.rack[held.node]
    up_at = np.where(np.isnan(held.started_at), now, held.started_at) + rules.ramp_s
    rising = (up_at > now) & (watts > seen.watts)
    ending = held.expected_end_at > now
    return Steps(
        rack=np.concatenate([rack[rising], rack[ending]]),
        at=np.concatenate([up_at[rising], held.expected_end_at[ending]]),
        # What ends gives back what it will draw by then, not only what it draws now.
        change_w=np.concatenate(
            [(watts - seen.watts)[rising], -np.where(rising, watts, seen.watts)[ending]]
        ),
    )
