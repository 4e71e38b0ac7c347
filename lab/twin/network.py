"""Traffic on the twin's links, and the share of each gang in them.

Within a node GPUs talk over NVLink; a gang over several nodes talks through its racks' uplinks and
the spine; one over several sites, and copies of checkpoints, over the WAN. Who shares a link shares
it max-min fair. That is worked out anew only when somebody comes or goes, or when conditions
change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headroom.traffic import TrafficClass
from lab.fleet import GPUS_PER_NODE, Fleet
from lab.training.making import NODE_WRITE_BYTES_PER_S
from lab.training.paths import HEALTHY_RAIL_LATENCY_S, NIC_SHARE, Paths, Speeds
from lab.training.workload import Load, Workload
from lab.twin.conditions import Conditions
from lab.twin.fair import Routes, max_min_rates
from lab.twin.links import (
    FABRIC_PACKET_BYTES,
    TCP_SEGMENT_BYTES,
    Links,
    link_table,
    lossy_fabric_share,
    lossy_tcp_bytes_per_s,
)
from lab.twin.parts import total

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indexes = NDArray[np.intp]

#: Share of its NICs that a gang over several nodes uses while it computes.
QUIET_SHARE = 0.25
#: Share of a gang's traffic that leaves the rack: most when it spans racks, else storage only.
LEAVES_SHARE = 0.4
STORAGE_SHARE = 0.05
#: Of what enters a rack's uplink, this much crosses the spine.
SPINE_SHARE = 0.4
WAN_BACKGROUND_BYTES_PER_S = 3e9
WAN_CHECKPOINT_BYTES_PER_NODE_S = 0.5e9
#: Counters are read as rates over about this long.
SMOOTHING_S = 8.0
WAN_LOSS_PER_S = 0.4
ERRORS_PER_LINK_S = 1e-5


class PlacedTwin(Protocol):
    """The parts of a twin that its network reads."""

    @property
    def fleet(self) -> Fleet: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def conditions(self) -> Conditions: ...
    @property
    def load(self) -> Load: ...
    @property
    def placement_version(self) -> int: ...
    @property
    def job_of_gpu(self) -> NDArray[np.int64]: ...
    @property
    def activity(self) -> NDArray[np.floating]: ...


@dataclass(frozen=True)
class _Gangs:
    """GPUs by slot, and by pairs of slot and rack and of slot and site, ordered by slot."""

    top: int
    gpus: Array
    nodes: Array
    racks: Array
    sites: Array
    pair_slot: Indexes
    pair_rack: Indexes
    pair_gpus: Array
    site_pair_slot: Indexes
    site_pair_site: Indexes
    site_pair_gpus: Array


class Network:
    """The links of the fleet of ``twin``. :meth:`advance` is to follow each step of the twin."""

    def __init__(self, twin: PlacedTwin, *, seed: int) -> None:
        fleet = twin.fleet
        self._twin = twin
        self._rng = np.random.default_rng([seed, 1])
        self.links: Links = link_table(fleet)
        count = len(self.links.names)
        gpus = [rack.kind.gpu for rack in fleet.racks]
        self._nic: Array = np.array([gpu.nic_bytes_per_s for gpu in gpus])
        self._nic_of_gpu = np.repeat(self._nic[fleet.rack_of_node], GPUS_PER_NODE)
        self._node_link: Array = np.array(
            [gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s for gpu in gpus]
        )
        self._rack_nodes: Array = np.array([float(rack.nodes) for rack in fleet.racks])
        self.tx_bytes_per_s = np.zeros(count)
        self.rx_bytes_per_s = np.zeros(count)
        self.retransmits_per_s = np.zeros(count)
        self.errors = np.zeros(count, dtype=np.int64)
        self._jitter_now_s = np.zeros(count)
        self._version = -1
        self._seen = b""
        self._refresh()

    # --- What gangs get --------------------------------------------------------------------------

    @property
    def paths(self) -> Paths:
        """The present network of each gang. The same object until something changes."""
        self._refresh()
        return self._paths

    def flow_share(self, slot: int) -> float:
        """Return the rate of a gang as a share of its rate alone on a healthy network."""
        paths = self.paths
        if slot >= len(paths.nodes) or paths.nodes[slot] == 0:
            return 1.0
        now, alone = paths.now, paths.alone
        share = float(now.rail_bytes_per_s[slot] / alone.rail_bytes_per_s[slot])
        if paths.sites[slot] > 1:
            share = min(share, float(now.wan_bytes_per_s[slot] / alone.wan_bytes_per_s[slot]))
        return share

    def copy_bytes_per_s(self, origin: int, target: int) -> float:
        """Return the rate of a copy from one site (by number) to another beside present traffic."""
        if origin == target:
            return np.inf
        self._refresh()
        route = self._route(origin, target)
        reach = self._tcp_reach(route)
        flow = np.append(self._wan_routes.flow, np.full(len(route), len(self._wan_demand)))
        rates = max_min_rates(
            Routes(
                flow.astype(np.intp),
                np.append(self._wan_routes.link, route).astype(np.intp),
                np.append(self._wan_routes.weight, np.ones(len(route))),
            ),
            capacity=self._capacity,
            demand=np.append(self._wan_demand, min(reach, 1e15)),
        )
        return float(rates[-1])

    def copy_s(self, origin: int, target: int, copied_bytes: float) -> float:
        """Return how long a copy between sites takes as things are; +inf: nothing gets through."""
        rate = self.copy_bytes_per_s(origin, target)
        if rate <= 0.0:
            return np.inf
        return copied_bytes / rate + self._delay_s(self._route(origin, target))

    # --- What sensors read -----------------------------------------------------------------------

    @property
    def latency_s(self) -> Array:
        """One-way latency: it grows as a queue does when the link fills."""
        use = np.maximum(self.tx_bytes_per_s, self.rx_bytes_per_s)
        conditions = self._twin.conditions
        capacity = self.links.capacity_bytes_per_s * conditions.link_capacity_share
        share = np.full(len(use), 0.98)
        np.divide(use, capacity, out=share, where=capacity > 0.0)
        share = share.clip(0.0, 0.98)
        queued = self.links.base_latency_s * (1.0 + 0.1 * share / (1.0 - share))
        latency: Array = queued + conditions.link_extra_latency_s + self._jitter_now_s
        return latency

    def sent_by_class(self) -> dict[TrafficClass, Array]:
        """Rate at which each link sends what is marked, by class; the rest is unmarked background.

        What leaves the racks of a gang that spans several is taken to be collectives, and of
        another its data.
        """
        self._refresh()
        leaving, is_wide = self._leaving(), self._paths.racks > 1
        fabric = slice(None, self.links.wan_from)
        collective, checkpoint, data = np.zeros((3, len(self.links.names)))
        collective[fabric] = np.concatenate(self._by_fabric(np.where(is_wide, leaving, 0.0)))
        collective[self.links.wan_from :] = self._collectives_by_wan()
        checkpoint[self.links.wan_from :] = self._checkpoints_by_wan()
        data[fabric] = np.concatenate(self._by_fabric(np.where(is_wide, 0.0, leaving)))
        offered = self._offered()
        held = np.divide(
            self.tx_bytes_per_s, offered, out=np.zeros(len(offered)), where=offered > 0.0
        )
        return {
            TrafficClass.COLLECTIVE: collective * held,
            TrafficClass.CHECKPOINT: checkpoint * held,
            TrafficClass.DATA: data * held,
        }

    def gpu_bytes_per_s(self) -> Array:
        """Rate at which each GPU sends to other nodes."""
        twin = self._twin
        wanted = self._wanted_share()[twin.job_of_gpu] * twin.activity.clip(0.0, 1.0)
        held = np.full(len(twin.load.activity), np.inf)
        paths = self.paths
        held[: len(paths.nodes)] = paths.now.rail_bytes_per_s
        sent: Array = np.minimum(wanted * self._nic_of_gpu, held[twin.job_of_gpu])
        return sent

    def advance(self, dt_s: float) -> None:
        """Take the twin's present traffic into the rates, ``dt_s`` after the last time."""
        self._refresh()
        conditions = self._twin.conditions
        sent = self._offered()
        wobble = self._rng.uniform(0.95, 1.05, (2, len(sent)))
        capacity = self.links.capacity_bytes_per_s * conditions.link_capacity_share
        capacity[self._cut] = 0.0
        keep = np.exp(-dt_s / SMOOTHING_S)
        for rate, offered in (
            (self.tx_bytes_per_s, sent * wobble[0]),
            (self.rx_bytes_per_s, self._received(sent) * wobble[1]),
        ):
            rate *= keep
            rate += (1.0 - keep) * np.minimum(offered, capacity)
        self._count_losses(dt_s, capacity)

    def _count_losses(self, dt_s: float, capacity: Array) -> None:
        loss = self._twin.conditions.link_loss
        wan = slice(self.links.wan_from, None)
        use = np.zeros(len(capacity[wan]))
        np.divide(self.tx_bytes_per_s[wan], capacity[wan], out=use, where=capacity[wan] > 0.0)
        packets = self.tx_bytes_per_s / FABRIC_PACKET_BYTES
        packets[wan] = self.tx_bytes_per_s[wan] / TCP_SEGMENT_BYTES
        self.retransmits_per_s[:] = packets * loss
        self.retransmits_per_s[wan] += np.where(
            self._cut[wan], 0.0, WAN_LOSS_PER_S * (1.0 + 20.0 * use**4)
        )
        count = len(packets)
        for link in self._rng.integers(
            0, count, self._rng.poisson(ERRORS_PER_LINK_S * dt_s * count)
        ):
            self.errors[link] += 1
        jitter_s = self._twin.conditions.link_jitter_s
        if jitter_s.any() or self._jitter_now_s.any():
            self._jitter_now_s = self._rng.exponential(jitter_s)

    def _wanted_share(self) -> Array:
        load = self._twin.load
        busy = np.where(load.communicating, NIC_SHARE, QUIET_SHARE)
        wanted: Array = busy * self._twin.workload.spans
        return wanted

    def _offered(self) -> Array:
        """Outward traffic offered to each link, from the rates that gangs get."""
        wan = WAN_BACKGROUND_BYTES_PER_S + self._checkpoints_by_wan()
        if len(self._wan_routes.flow):
            wan += self._collectives_by_wan()
        return np.concatenate([*self._by_fabric(self._leaving()), wan])

    def _leaving(self) -> Array:
        """Rate at which each GPU of a gang sends out of its rack, by slot."""
        top, paths = self._gangs.top, self._paths
        work = np.minimum(self._twin.load.activity[:top], 1.0)
        wanted = self._wanted_share()[:top] * work * self._slot_nic
        per_gpu = np.minimum(wanted, paths.now.rail_bytes_per_s)
        leaving: Array = per_gpu * np.where(paths.racks > 1, LEAVES_SHARE, STORAGE_SHARE)
        return leaving

    def _by_fabric(self, leaving: Array) -> tuple[Array, Array]:
        """Traffic of the uplink of each rack and of the spine of each site."""
        gangs, links = self._gangs, self.links
        uplink = total(gangs.pair_rack, leaving[gangs.pair_slot] * gangs.pair_gpus, links.racks)
        spine = total(self._twin.fleet.site_of_rack, uplink, links.sites)
        return uplink, SPINE_SHARE * spine

    def _checkpoints_by_wan(self) -> Array:
        top, paths = self._gangs.top, self._paths
        writing = np.where(self._twin.load.checkpointing[:top], paths.nodes, 0.0)
        writers = total(paths.site, writing, self.links.sites)
        return (WAN_CHECKPOINT_BYTES_PER_NODE_S * writers)[self.links.site[self.links.wan_from :]]

    def _collectives_by_wan(self) -> Array:
        top, routes = self._gangs.top, self._wan_routes
        speed = self._paths.now.wan_bytes_per_s
        moving = np.where(self._twin.load.communicating[:top], speed, 0.0)
        count = len(self.links.names) - self.links.wan_from
        return total(routes.link - self.links.wan_from, moving[routes.flow], count)

    def _received(self, sent: Array) -> Array:
        """Inward traffic: of collectives as much as outward, of WAN links that of their peer."""
        received = sent.copy()
        wan = slice(self.links.wan_from, None)
        back = np.bincount(
            self.links.wan_peer, weights=np.where(self._cut[wan], 0.0, sent[wan]),
            minlength=self.links.sites,
        )  # fmt: skip
        received[wan] = back[self.links.site[wan]]
        return received

    # --- Who shares what -------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Share the links anew, if placement or conditions have changed."""
        conditions = self._twin.conditions
        seen = b"".join(
            values.tobytes()
            for values in (
                conditions.link_capacity_share,
                conditions.link_extra_latency_s,
                conditions.link_jitter_s,
                conditions.link_loss,
                conditions.site_isolated,
            )
        )
        if self._version != self._twin.placement_version:
            self._version = self._twin.placement_version
            self._gangs = _gangs(self._twin)
        elif seen == self._seen:
            return
        self._seen = seen
        self._share()

    def _share(self) -> None:
        links, conditions, gangs = self.links, self._twin.conditions, self._gangs
        isolated = conditions.site_isolated
        self._cut: Bools = np.zeros(len(links.names), dtype=np.bool_)
        wan = slice(links.wan_from, None)
        self._cut[wan] = isolated[links.site[wan]] | isolated[links.wan_peer]
        free = 1.0 - links.control_share
        healthy = links.capacity_bytes_per_s * free
        healthy[wan] = np.maximum(healthy[wan] - WAN_BACKGROUND_BYTES_PER_S, 0.0)
        self._capacity: Array = links.capacity_bytes_per_s * conditions.link_capacity_share * free
        self._capacity[wan] = np.maximum(self._capacity[wan] - WAN_BACKGROUND_BYTES_PER_S, 0.0)
        self._capacity[self._cut] = 0.0
        self._slot_nic: Array = _least(gangs, self._nic)
        rail, rail_alone = self._rails(gangs, healthy)
        wan_now, wan_alone = self._wans(gangs, healthy)
        worst = _worst(gangs, links, conditions)
        self._paths = Paths(
            gpus=gangs.gpus,
            nodes=gangs.nodes,
            racks=gangs.racks,
            sites=gangs.sites,
            site=_first_site(gangs),
            node_bytes_per_s=_least(gangs, self._node_link),
            now=Speeds(
                rail_bytes_per_s=rail
                * lossy_fabric_share(
                    loss=worst.loss, bytes_per_s=rail, round_trip_s=2.0 * worst.latency_s
                ),
                rail_latency_s=worst.latency_s + worst.jitter_s,
                wan_bytes_per_s=wan_now,
                wan_latency_s=self._wan_delay(gangs, healthy=False),
                wait_s=worst.jitter_s * _latest_of(gangs.nodes)
                + self._wan_jitter(gangs) * _latest_of(gangs.sites),
            ),
            alone=Speeds(
                rail_bytes_per_s=rail_alone,
                rail_latency_s=worst.healthy_s,
                wan_bytes_per_s=wan_alone,
                wan_latency_s=self._wan_delay(gangs, healthy=True),
                wait_s=np.zeros(gangs.top),
            ),
            fabric_loss=worst.loss,
            wan_loss=self._wan_loss(gangs),
            storage_bytes_per_s=self._to_storage(gangs),
        )

    def _rails(self, gangs: _Gangs, healthy: Array) -> tuple[Array, Array]:
        """Return the rate at which each GPU of a gang sends to other nodes: now, and alone."""
        wanted = NIC_SHARE * self._slot_nic
        across = gangs.racks > 1
        here = across[gangs.pair_slot]
        at_site = across[gangs.site_pair_slot]
        routes = Routes(
            flow=np.append(gangs.pair_slot[here], gangs.site_pair_slot[at_site]),
            link=np.append(gangs.pair_rack[here], self.links.racks + gangs.site_pair_site[at_site]),
            weight=LEAVES_SHARE
            * np.append(gangs.pair_gpus[here], SPINE_SHARE * gangs.site_pair_gpus[at_site]),
        )
        alone = wanted.copy()
        np.minimum.at(alone, routes.flow, healthy[routes.link] / routes.weight)
        return max_min_rates(routes, capacity=self._capacity, demand=wanted), alone

    def _wans(self, gangs: _Gangs, healthy: Array) -> tuple[Array, Array]:
        """Return the rate of each gang between its sites, now and alone; +inf: it has one site."""
        self._legs = self._find_legs(gangs)
        demand, now = np.zeros(gangs.top), np.full(gangs.top, np.inf)
        alone = now.copy()
        for slot, route in self._legs.items():
            alone[slot] = healthy[route].min()
            demand[slot] = min(alone[slot], self._tcp_reach(route))
        self._wan_demand: Array = demand
        self._wan_routes = Routes(
            flow=np.repeat(
                np.array([*self._legs], dtype=np.intp),
                [len(route) for route in self._legs.values()],
            ),
            link=np.array([link for route in self._legs.values() for link in route], dtype=np.intp),
            weight=np.ones(sum(len(route) for route in self._legs.values())),
        )
        if self._legs:
            rates = max_min_rates(self._wan_routes, capacity=self._capacity, demand=demand)
            now[[*self._legs]] = rates[[*self._legs]]
        return now, alone

    def _find_legs(self, gangs: _Gangs) -> dict[int, list[int]]:
        """Return the WAN links over which the ring of each gang at several sites goes."""
        legs = {}
        for slot in np.flatnonzero(gangs.sites > 1):
            sites = gangs.site_pair_site[gangs.site_pair_slot == slot].tolist()
            hops = zip(sites, sites[1:] + sites[:1], strict=True)
            legs[int(slot)] = sorted({link for a, b in hops for link in self._route(a, b)})
        return legs

    def _route(self, origin: int, target: int) -> list[int]:
        """Return the links of the shorter way around the ring of sites."""
        sites, first = self.links.sites, self.links.wan_from
        onward, back = (target - origin) % sites, (origin - target) % sites
        start, hops = (origin, onward) if onward <= back else (target, back)
        return [first + (start + i) % sites for i in range(hops)]

    def _delay_s(self, route: Sequence[int], *, healthy: bool = False) -> float:
        base_s = self.links.base_latency_s[route].sum()
        if healthy:
            return float(base_s)
        conditions = self._twin.conditions
        extra_s = conditions.link_extra_latency_s[route] + conditions.link_jitter_s[route]
        return float(base_s + extra_s.sum())

    def _tcp_reach(self, route: Sequence[int]) -> float:
        """Return the highest TCP throughput under the losses of a route."""
        got = lossy_tcp_bytes_per_s(
            loss=np.array(_joint_loss(self._twin.conditions.link_loss[route])),
            round_trip_s=np.array(2.0 * self._delay_s(route)),
        )
        return float(got)

    def _wan_delay(self, gangs: _Gangs, *, healthy: bool) -> Array:
        """Return the one-way latency of a leg between sites, by slot: of their mean."""
        delay_s = np.zeros(gangs.top)
        for slot, route in self._legs.items():
            delay_s[slot] = self._delay_s(route, healthy=healthy) / gangs.sites[slot]
        return delay_s

    def _wan_jitter(self, gangs: _Gangs) -> Array:
        jitter_s = np.zeros(gangs.top)
        for slot, route in self._legs.items():
            jitter_s[slot] = self._twin.conditions.link_jitter_s[route].max()
        return jitter_s

    def _wan_loss(self, gangs: _Gangs) -> Array:
        loss = np.zeros(gangs.top)
        for slot, route in self._legs.items():
            loss[slot] = _joint_loss(self._twin.conditions.link_loss[route])
        return loss

    def _to_storage(self, gangs: _Gangs) -> Array:
        """Return the rate of each gang to its storage: all of its nodes at the pace of the slowest.

        A rack's uplink is shared among all of its nodes, as if all of them wrote.
        """
        uplinks = self._capacity[: self.links.racks] / self._rack_nodes
        return gangs.nodes * _least(gangs, np.minimum(uplinks, NODE_WRITE_BYTES_PER_S))


@dataclass(frozen=True)
class _Worst:
    """Latency, jitter and loss of the worst way between two GPUs of a gang, by slot."""

    healthy_s: Array
    latency_s: Array
    jitter_s: Array
    loss: Array


def _worst(gangs: _Gangs, links: Links, conditions: Conditions) -> _Worst:
    """Return the way up from the worst rack, over the worst spine, and down to a rack as bad."""
    across = gangs.racks > 1

    def most(values: Array) -> Array:
        up, spine = np.zeros(gangs.top), np.zeros(gangs.top)
        if not values.any():
            return up
        np.maximum.at(up, gangs.pair_slot, values[gangs.pair_rack])
        np.maximum.at(spine, gangs.site_pair_slot, values[links.racks + gangs.site_pair_site])
        return np.where(across, 2.0 * up + spine, 0.0)

    healthy_s = HEALTHY_RAIL_LATENCY_S + most(links.base_latency_s)
    return _Worst(
        healthy_s=healthy_s,
        latency_s=healthy_s + most(conditions.link_extra_latency_s),
        jitter_s=most(conditions.link_jitter_s),
        loss=np.minimum(most(conditions.link_loss), 1.0),
    )


def _latest_of(count: Array) -> Array:
    """Return how late the latest of ``count`` is, over the mean delay: the part of H(n) above 1.

    The mean of the largest of n exponential delays is H(n) times the mean of one.
    """
    several = np.maximum(count, 1.0)
    return np.log(several) + np.where(several > 1.0, np.euler_gamma - 1.0 + 0.5 / several, 0.0)


def _joint_loss(loss: Array) -> float:
    return float(1.0 - np.prod(1.0 - loss))


def _gangs(twin: PlacedTwin) -> _Gangs:
    """Count GPUs, nodes, racks and sites of each gang."""
    fleet, top = twin.fleet, twin.workload.top
    node_count = len(fleet.nodes)
    job = twin.job_of_gpu
    # Where the job or the node changes: GPUs of a gang stand side by side, so these are few.
    begins = np.ones(len(job), dtype=np.bool_)
    np.not_equal(job[1:], job[:-1], out=begins[1:])
    begins[::GPUS_PER_NODE] = True
    starts = np.flatnonzero(begins)
    held = job[starts] > 0
    gpus = np.diff(starts, append=len(job))[held]
    starts = starts[held]
    key = job[starts] * node_count + starts // GPUS_PER_NODE
    order = np.argsort(key, kind="stable")
    key, count = _sums(key[order], gpus[order])
    slot, node = np.divmod(key, node_count)
    ones = np.ones(len(slot))
    racks, sites = len(fleet.racks), len(fleet.sites)
    by_rack, rack_gpus = _sums(slot * racks + fleet.rack_of_node[node], count)
    pair_slot, pair_rack = np.divmod(by_rack, racks)
    by_site, site_gpus = _sums(pair_slot * sites + fleet.site_of_rack[pair_rack], rack_gpus)
    site_slot, site = np.divmod(by_site, sites)

    def by_slot(slots: Indexes, values: Array) -> Array:
        return np.bincount(slots, weights=values, minlength=top).astype(np.float64)

    return _Gangs(
        top=top,
        gpus=by_slot(slot, count),
        nodes=by_slot(slot, ones),
        racks=by_slot(pair_slot, np.ones(len(pair_slot))),
        sites=by_slot(site_slot, np.ones(len(site_slot))),
        pair_slot=pair_slot,
        pair_rack=pair_rack,
        pair_gpus=rack_gpus,
        site_pair_slot=site_slot,
        site_pair_site=site,
        site_pair_gpus=site_gpus,
    )


def _sums(key: Indexes, values: Array) -> tuple[Indexes, Array]:
    """Return each key of a sorted list once, and the sum of its values."""
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    if not len(starts):
        return key, values
    return key[starts], np.add.reduceat(values, starts)


def _least(gangs: _Gangs, of_rack: Array) -> Array:
    """Return the least of a value by rack over the racks of each gang."""
    least = np.full(gangs.top, np.inf)
    np.minimum.at(least, gangs.pair_slot, of_rack[gangs.pair_rack])
    return np.where(np.isfinite(least), least, 0.0)


def _first_site(gangs: _Gangs) -> Indexes:
    site = np.zeros(gangs.top, dtype=np.intp)
    site[gangs.site_pair_slot[::-1]] = gangs.site_pair_site[::-1]
    return site
