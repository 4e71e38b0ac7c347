"""Clusters and requests for tests of the solver, and plain loops that count after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from admission.core.placement.cluster import Cluster
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Locality, Placement, Refusal, Request
from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Past, Reservations, ThermalFits
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import GPU_IDLE_W, make_frame

NOW = 1_000_000.0
AT = datetime.fromtimestamp(NOW, UTC)


def make_request(key: str = "job/train", **values: Any) -> Request:
    """Return a request for eight GPUs of any model for an hour, but for ``values``."""
    job, _, phase = key.partition("/")
    given: dict[str, Any] = {
        "project": "vision",
        "job_class": "training",
        "priority": 0,
        "submitted_at": NOW,
        "gpus": 8,
        "walltime_s": 3600.0,
        **values,
    }
    given.setdefault("min_gpus", given["gpus"])
    return Request(key=key, job=job, phase=phase, **given)


def make_restriction(
    kind: str, scope: str, value: float | None = None, number: int = 7, reason: str = "too hot"
) -> ActiveRestriction:
    """Return a restriction on a scope such as "rack s1/A01"."""
    of, _, name = scope.partition(" ")
    return ActiveRestriction(
        id=number,
        kind=RestrictionKind(kind),
        scope=Scope(ScopeKind(of), name),
        value=value,
        reason=reason,
        owner="user:ada",
        cause="test",
        issued_at=AT,
        expires_at=AT + timedelta(hours=1),
    )


def headroom_of(
    fleet: FleetArrays,
    *,
    gpu: dict[str, Any] | None = None,
    links: dict[str, Any] | None = None,
    past: Past | None = None,
    reservations: Reservations | None = None,
    **kinds: Any,
) -> Headroom:
    """Evaluate an idle fleet in which all GPUs and links are read, but for what is given."""
    idle = {"power_w": GPU_IDLE_W, "temp_c": 30.0, "temp_mem_c": 30.0, "throttle": 0}
    frame = make_frame(
        fleet,
        now=NOW,
        gpu={**idle, **(gpu or {})},
        link={"tx_bytes_per_s": 0.0, "rx_bytes_per_s": 0.0, **(links or {})},
        **kinds,
    )  # fmt: skip
    return evaluate(fleet, frame, now=NOW, past=past, reservations=reservations)


def make_cluster(
    fleet: FleetArrays,
    *,
    restrictions: Sequence[ActiveRestriction] = (),
    occupied: Iterable[int] = (),
    **given: Any,
) -> Cluster:
    """Return a fleet on which only ``occupied`` GPUs, by row, are taken."""
    held = np.zeros(len(fleet.gpus), dtype=bool)
    held[list(occupied)] = True
    return Cluster.of(headroom_of(fleet, **given), InForce(AT, tuple(restrictions)), held, now=NOW)


def with_resistance(fleet: FleetArrays, c_per_w: Any, ambient_c: float = 22.0) -> Past:
    """Return a past in which every GPU has a thermal fit."""
    ones = np.ones(len(fleet.gpus))
    fits = ThermalFits(ones * c_per_w, ones * 500.0, ones * ambient_c, ones)
    return replace(Past.none(fleet), thermal=fits)


def placed(found: Placement | Refusal) -> Placement:
    """Return the placement that was to be found."""
    assert isinstance(found, Placement), [each.sentence for each in found.reasons]
    return found


def refused(found: Placement | Refusal) -> dict[ReasonToken, Reason]:
    """Return the reasons that were to be found, by token."""
    assert isinstance(found, Refusal), found
    return {each.token: each for each in found.reasons}


def parts_of(fleet: FleetArrays, placement: Placement, level: Locality) -> int:
    """Return on how many racks, zones or sites a gang stands."""
    rack = fleet.nodes.rack[list(placement.nodes)]
    part = {
        Locality.NODE: np.array(placement.nodes),
        Locality.RACK: rack,
        Locality.ZONE: fleet.racks.zone[rack],
        Locality.SITE: fleet.racks.site[rack],
    }
    return len(set(part[level].tolist()))


# --- Plain loops ----------------------------------------------------------------------------------


@dataclass
class Loads:
    """What racks carry, W, counted anew from what everybody draws or has reserved."""

    fleet: FleetArrays
    rack_w: list[float]

    @staticmethod
    def of(fleet: FleetArrays, gpu_w: Any, gangs: Iterable[Placement]) -> Loads:
        """``gpu_w`` is what each GPU draws that no gang holds; hosts follow their GPUs."""
        held: dict[int, bool] = {}
        rack_w = [0.0] * len(fleet.racks)
        for gang in gangs:
            for gpu in gang.gpus:
                assert gpu not in held, "a GPU is in two gangs"
                held[gpu] = True
            for node, watts in zip(gang.nodes, gang.peak_w, strict=True):
                rack_w[fleet.nodes.rack[node]] += watts
        for node in range(len(fleet.nodes)):
            gpus = range(fleet.gpu_bounds[node], fleet.gpu_bounds[node + 1])
            free = [gpu for gpu in gpus if gpu not in held]
            idle_w = float(fleet.nodes.host_idle_w[node])
            rated_w = sum(float(fleet.gpus.rated_w[gpu]) for gpu in gpus)
            factor = 1.0 + (float(fleet.nodes.host_rated_w[node]) - idle_w) / rated_w
            watts = factor * sum(gpu_w[gpu] for gpu in free) + idle_w * len(free) / len(gpus)
            rack_w[fleet.nodes.rack[node]] += watts
        return Loads(fleet, rack_w)

    def feeds(self, rack: int, failed: int = -1) -> list[int]:
        """Return the feeds that a rack draws on when a power domain has failed."""
        both = [int(self.fleet.racks.feed_a[rack]), int(self.fleet.racks.feed_b[rack])]
        there = [feed for feed in both if feed >= 0]
        left = [feed for feed in there if failed < 0 or failed not in self.above(feed)]
        return left or there

    def above(self, feed: int) -> list[int]:
        found = []
        while feed >= 0:
            found.append(feed)
            feed = int(self.fleet.domains.parent[feed])
        return found

    def domain_w(self, domain: int, failed: int = -1) -> float:
        """Return what a power domain carries, also when another one has failed."""
        total = 0.0
        for rack, watts in enumerate(self.rack_w):
            feeds = self.feeds(rack, failed)
            total += sum(watts / len(feeds) for feed in feeds if domain in self.above(feed))
        return total

    def excess_w(self, racks: Iterable[int]) -> dict[str, float]:
        """Return what is over its limit of all that ``racks`` draw on, W by name."""
        fleet, racks = self.fleet, set(racks)
        sites = {int(fleet.racks.site[rack]) for rack in racks}
        zones = {int(fleet.racks.zone[rack]) for rack in racks}
        domains = {
            domain for rack in racks for feed in self.feeds(rack) for domain in self.above(feed)
        }
        found = {
            f"rack {rack}": self.rack_w[rack] - float(fleet.racks.budget_w[rack]) for rack in racks
        }
        for zone in zones - {-1}:
            members = np.flatnonzero(fleet.racks.zone == zone)
            load_w = sum(self.rack_w[rack] for rack in members)
            found[f"zone {zone}"] = load_w - float(fleet.zones.capacity_w[zone])
        for domain in domains:
            usable_w = float(fleet.domains.capacity_w[domain] * fleet.domains.derating[domain])
            found[f"domain {domain}"] = self.domain_w(domain) - usable_w
            mate = int(fleet.domains.pair[domain])
            if mate >= 0:
                found[f"domain {domain} alone"] = self.domain_w(domain, mate) - usable_w
        for site in sites:
            budget_w = float(fleet.sites.budget_w[site])
            members = np.flatnonzero(fleet.racks.site == site)
            found[f"site {site}"] = sum(self.rack_w[rack] for rack in members) - budget_w
        return {name: watts for name, watts in found.items() if watts > 1e-6}
