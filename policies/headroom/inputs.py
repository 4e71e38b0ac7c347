"""Inputs of headroom besides inventory and live frame: reservations, limits, and the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fleet.tables import FleetArrays
from policies.headroom.claims import Claims
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.outlook import Record
from policies.headroom.replicas import Replicas
from policies.scopes import ScopeKind
from telemetry.summary import HostCurves


@dataclass(frozen=True, eq=False)
class Steps:
    """Changes of load that are known beforehand: ramps of admitted jobs, and ends of jobs.

    Arrays of one length. ``change_w`` is below 0 where a job ends.
    """

    rack: Ints
    #: Unix seconds
    at: Floats
    change_w: Floats

    @staticmethod
    def none() -> Steps:
        """No change is known."""
        return Steps(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Reservations:
    """Reserved peaks of admitted jobs, aligned with the tables of the inventory.

    Of racks and nodes the larger of load and reservation counts; ``rack_w`` has those of its nodes
    in it. On links and storage, where no reading says whose the traffic is, reservations come on
    top of the load: give those of jobs that do not run yet.
    """

    rack_w: Floats
    node_w: Floats
    link_bits_per_s: Floats
    storage_bytes_per_s: Floats
    steps: Steps = field(default_factory=Steps.none)
    #: of links: that of all jobs, also of those whose traffic readings show; empty: none
    all_link_bits_per_s: Floats = field(default_factory=lambda: np.zeros(0))
    #: of racks, power domains and sites: what is reserved and not drawn yet, W, where that is not
    #: the sum over their nodes: gangs seldom peak together
    to_come_w: Mapping[ScopeKind, Floats] = field(default_factory=dict)

    @staticmethod
    def none(fleet: FleetArrays) -> Reservations:
        """Nothing is reserved."""
        racks, nodes, links, storage = (
            np.zeros(len(table)) for table in (fleet.racks, fleet.nodes, fleet.links, fleet.storage)
        )
        return Reservations(racks, nodes, links, storage)

    @property
    def link_all_bits_per_s(self) -> Floats:
        """What all jobs have reserved on each link, bit/s."""
        known = self.all_link_bits_per_s
        return known if len(known) else self.link_bits_per_s


@dataclass(frozen=True, eq=False)
class Limits:
    """Restrictions in force, as far as headroom depends on them.

    ``gpu_cap_w`` is inf where a GPU has no cap. ``link_share`` is the share of a link's capacity
    that bulk traffic may take, 1 where nothing limits it. ``budget_w`` has what sites, zones, power
    domains and racks may draw, inf where nothing limits it; a kind that is not there has no limit.
    """

    gpu_cap_w: Floats
    link_share: Floats
    budget_w: Mapping[ScopeKind, Floats] = field(default_factory=dict)

    @staticmethod
    def none(fleet: FleetArrays) -> Limits:
        """Nothing is restricted."""
        return Limits(np.full(len(fleet.gpus), np.inf), np.ones(len(fleet.links)))

    def budget_of(self, kind: ScopeKind, budget_w: Floats) -> Floats:
        """Return what the scopes of a kind may draw, W: ``budget_w`` of the inventory, or less.

        Where the inventory has none (NaN), the restriction alone counts.
        """
        limit_w = self.budget_w.get(kind)
        if limit_w is None:
            return budget_w
        return np.where(np.isfinite(limit_w), np.fmin(budget_w, limit_w), budget_w)


@dataclass(frozen=True, eq=False)
class ThermalFits:
    """Thermal resistance, capacitance and ambient of GPUs as fitted; NaN where there is no fit.

    ``trust`` is 0 to 1: what a fit is worth, by its own error.
    """

    resistance_c_per_w: Floats
    capacitance_j_per_c: Floats
    ambient_c: Floats
    trust: Floats

    @staticmethod
    def none(fleet: FleetArrays) -> ThermalFits:
        """No GPU was fitted."""
        return ThermalFits(*(np.full(len(fleet.gpus), np.nan) for _ in range(4)))


@dataclass(frozen=True, eq=False)
class Mounts:
    """Mounts whose storage is probed: ids as in the live frame, and rows of storage endpoints."""

    ids: Ints
    endpoint: Ints


@dataclass(frozen=True, eq=False)
class Outlook:
    """The record of forecasts of all budgets, and the claims that stand, as of ``at`` (Unix s).

    Budgets stand in one row, as in :mod:`policies.headroom.budgets`. ``silent`` is how many nodes
    and GPUs of each were not read then.
    """

    at: float
    record: Record
    claims: Claims
    silent: Floats

    @staticmethod
    def none(budgets: int) -> Outlook:
        """Nothing was compared, and nothing is claimed."""
        return Outlook(0.0, Record.none(budgets), Claims.none(budgets), np.zeros(budgets))


@dataclass(frozen=True, eq=False)
class Past:
    """Observations from before this moment. NaN: unknown.

    ``slopes`` has for each kind of scope how its load moves (W/s; links: bit/s²), aligned with the
    inventory. ``gpu_still_s`` is for how long each GPU's power has hardly moved.
    """

    slopes: dict[ScopeKind, Floats]
    gpu_still_s: Floats
    #: 95th percentile of each link over the last minutes
    link_bits_per_s: Floats
    thermal: ThermalFits
    #: by node: GPUs that are worse than their peers, and Xid errors within the last hour
    lemon_gpus: Ints
    xids: Ints
    mounts: Mounts
    #: checkpoints of jobs that run
    replicas: Replicas = field(default_factory=Replicas.none)
    hosts: HostCurves | None = None
    outlook: Outlook | None = None

    @staticmethod
    def none(fleet: FleetArrays) -> Past:
        """Nothing was seen."""
        nodes = np.zeros(len(fleet.nodes), dtype=np.int64)
        no_rows = np.zeros(0, dtype=np.int64)
        return Past(
            slopes={},
            gpu_still_s=np.zeros(len(fleet.gpus)),
            link_bits_per_s=np.full(len(fleet.links), np.nan),
            thermal=ThermalFits.none(fleet),
            lemon_gpus=nodes,
            xids=nodes,
            mounts=Mounts(no_rows, no_rows),
        )

    def frame_ids(self, fleet: FleetArrays) -> dict[str, Ints]:
        """Return the ids of all things that frames are asked for, by their kind."""
        return {
            "gpu": fleet.gpus.ids,
            "host": fleet.nodes.ids,
            "link": fleet.links.ids,
            "meter": fleet.meters.ids,
            "storage": self.mounts.ids,
        }

    def slope(self, kind: ScopeKind, count: int) -> Floats:
        """Return how the loads of one kind move; NaN where that is not known."""
        return self.slopes.get(kind, np.full(count, np.nan))


def still_enough(still_s: Floats, time_constant_s: Floats) -> Bools:
    """Whether power has been still for so long that heat has settled to within 5 %."""
    settled: Bools = still_s >= 3.0 * time_constant_s
    return settled
