"""The readings of the twin's agents: the state of the twin as blocks of the telemetry contract.

Values have the grain of the real sensors: whole degrees, 15 MHz steps, hundredths of a watt. What a
part does not have (NVLink on an L40S) is left out, as the contract asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import (
    Columns,
    GpuColumns,
    HostColumns,
    LinkColumns,
    MeterColumns,
    NodeReport,
    XidColumns,
)
from headroom.traffic import reading_of
from lab.fleet import GPUS_PER_NODE
from lab.twin import Conditions, Twin, XidLine
from lab.twin.network import Network

Array = NDArray[np.float64]
AnyColumns = TypeVar("AnyColumns", bound=Columns)

CLOCK_STEP_MHZ = 15.0


class Sensors:
    """The sensors of nodes with their faults: the values read, given the true ones.

    Keeps what was read last, which stuck sensors go on to read. So one of it belongs to each series
    of frames.
    """

    def __init__(self) -> None:
        self._last: dict[str, NDArray[Any]] = {}

    def read(
        self, conditions: Conditions, arrays: Mapping[str, NDArray[Any]], per_node: int
    ) -> dict[str, NDArray[Any]]:
        """Return ``arrays`` as they are read, each with ``per_node`` values for each node."""
        bias = np.repeat(conditions.power_bias, per_node)
        bias_c = np.repeat(conditions.temp_bias_c, per_node)
        stuck = np.repeat(conditions.stuck, per_node)
        read = dict(arrays)
        read["power_w"] = (read["power_w"] * bias).round(2)
        for name in ("temp_c", "temp_mem_c"):
            if name in read:
                read[name] = read[name] + bias_c
        if stuck.any():
            read = {
                name: np.where(stuck, self._last.get(f"{name}/{per_node}", values), values)
                for name, values in read.items()
            }
        self._last |= {f"{name}/{per_node}": values.copy() for name, values in read.items()}
        return read


def unheard(twin: Twin) -> NDArray[np.bool_]:
    """Return the nodes that nothing is heard of: silent ones, and those of a site that is cut off.

    What is cut off goes on, and tells of it later.
    """
    cut_off = twin.conditions.site_isolated[twin.fleet.site_of_rack[twin.fleet.rack_of_node]]
    nodes: NDArray[np.bool_] = twin.silent | cut_off
    return nodes


class Frame:
    """A copy of all sensors' values at one moment of the twin."""

    def __init__(self, twin: Twin, network: Network, sensors: Sensors | None = None) -> None:
        sensors = sensors or Sensors()
        self.fleet = twin.fleet
        self.silent = twin.silent
        self._skew_s = twin.conditions.clock_skew_s.copy()
        #: The columns of all GPUs by name in the contract; NaN where a model lacks the part.
        self.gpus = sensors.read(twin.conditions, _gpu_arrays(twin, network), GPUS_PER_NODE)
        self._xid = twin.xid.copy()
        self._hosts = sensors.read(twin.conditions, _host_arrays(twin, network), 1)
        self._job = [twin.workload.names[slot] for slot in twin.job_of_gpu]
        self._site_of_link = network.links.site
        self._link_names = network.links.names
        self._links: dict[str, NDArray[Any]] = {
            "tx_bytes_per_s": network.tx_bytes_per_s.round(),
            "rx_bytes_per_s": network.rx_bytes_per_s.round(),
            "latency_s": network.latency_s.round(9),
            "retransmits_per_s": network.retransmits_per_s.round(3),
            "errors": network.errors.copy(),
            **{reading_of(each): sent.round() for each, sent in network.sent_by_class().items()},
        }
        self._rack_w = twin.rack_w.round(-1)
        self._rack_j = twin.rack_energy_j.round()
        self._domains = twin.domains
        self._domain_w = twin.domain_w.copy()
        self._domain_j = twin.domain_energy_j.copy()
        self._inlet_c = twin.inlet_c.round(1)

    def node(self, node: int, ts: float) -> NodeReport:
        """Return the report of node number ``node``, at ``ts`` by a clock that is right."""
        ts = self.node_time(node, ts)
        first = node * GPUS_PER_NODE
        part = slice(first, first + GPUS_PER_NODE)
        gpus = GpuColumns(ts=[ts] * GPUS_PER_NODE, gpu=list(range(GPUS_PER_NODE)))
        for name, values in self.gpus.items():
            # GPUs of one node are of one model: a part that the first lacks, all lack.
            if values[first] == values[first]:
                setattr(gpus, name, values[part].tolist())
        gpus.xid = [code or None for code in self._xid[part].tolist()]
        gpus.job = self._job[part]
        host = HostColumns(ts=[ts])
        for name, values in self._hosts.items():
            setattr(host, name, [values[node].item()])
        return NodeReport(node=self.fleet.nodes[node], gpus=gpus, host=host)

    def node_time(self, node: int, ts: float) -> float:
        """Return the time on the clock of a node at ``ts``."""
        return ts + float(self._skew_s[node])

    def links(self, site: int, ts: float) -> LinkColumns:
        """Return the readings by the collector of site ``site`` of the links that start there."""
        here = np.flatnonzero(self._site_of_link == site)
        columns = LinkColumns(ts=[ts] * len(here), link=[self._link_names[i] for i in here])
        for name, values in self._links.items():
            setattr(columns, name, values[here].tolist())
        return columns

    def meters(self, site: int, ts: float) -> MeterColumns:
        """Return the readings by the collector of site ``site`` of the meters there."""
        powers = [*self._power_meters(site)]
        zones = [*self._zone_meters(site)]
        return MeterColumns(
            ts=[ts] * (len(powers) + len(zones)),
            meter=[name for name, _, _ in powers] + [name for name, _ in zones],
            power_w=[round(float(w), 1) for _, w, _ in powers] + [None] * len(zones),
            energy_j=[round(float(j)) for _, _, j in powers] + [None] * len(zones),
            temp_c=[None] * len(powers) + [celsius for _, celsius in zones],
        )

    def _power_meters(self, site: int) -> Iterator[tuple[str, float, float]]:
        """Yield name, W and J of the racks, PDUs, feeds and utility of a site."""
        name = self.fleet.sites[site]
        here = self.fleet.site_of_rack == site
        for rack in np.flatnonzero(here):
            yield f"{name}/{self.fleet.racks[rack].name}", self._rack_w[rack], self._rack_j[rack]
        for domain in np.flatnonzero(self._domains.site == site):
            path = f"{name}/{self._domains.names[domain]}"
            yield path, self._domain_w[domain], self._domain_j[domain]

    def _zone_meters(self, site: int) -> Iterator[tuple[str, float]]:
        """Yield name and mean inlet temperature of the cooling zones of a site."""
        for row, racks in self._rows(site):
            name = f"{self.fleet.sites[site]}/zone-{row.lower()}"
            yield name, round(float(self._inlet_c[racks].mean()), 1)

    def _rows(self, site: int) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        for index, (name, row) in enumerate(self.fleet.rows):
            if name == self.fleet.sites[site]:
                yield row, self.fleet.row_of_rack == index


def xid_columns(lines: Sequence[XidLine], now_s: float, ts: float) -> XidColumns:
    """Return lines of one node's kernel log, of which ``ts`` is the twin's ``now_s``."""
    indexes: list[int | None] = [line.gpu % GPUS_PER_NODE for line in lines]
    return XidColumns(
        ts=[ts - (now_s - line.at_s) for line in lines],
        xid=[line.xid for line in lines],
        gpu=indexes,
        text=[f"NVRM: Xid: {line.xid}, GPU {i}" for line, i in zip(lines, indexes, strict=True)],
    )


def join(blocks: Sequence[AnyColumns]) -> AnyColumns:
    """Return one block with the rows of all ``blocks``, which have the same columns."""
    first = blocks[0]
    columns = {
        name: [value for block in blocks for value in getattr(block, name)]
        for name in first.__struct_fields__
        if getattr(first, name) is not None
    }
    return type(first)(**columns)


def join_reports(reports: Sequence[NodeReport]) -> NodeReport:
    """Return one report with the rows of all ``reports``, which are of one node."""
    gpus = [report.gpus for report in reports if report.gpus is not None]
    hosts = [report.host for report in reports if report.host is not None]
    return NodeReport(node=reports[0].node, gpus=join(gpus), host=join(hosts))


def _gpu_arrays(twin: Twin, network: Network) -> Mapping[str, NDArray[Any]]:
    """Return the columns of all GPUs, by name in the contract; NaN where a model lacks the part."""
    parts, load, job = twin.parts, twin.load, twin.job_of_gpu
    work = twin.activity.clip(0.0, 1.0)
    intensity = np.where(load.communicating, 0.55, 0.1)[job] * work
    nvlink = (intensity * parts.nvlink_bytes_per_s).round()
    to_disk = np.where(load.checkpointing, 0.4, 0.03)[job] * twin.busy
    pcie = to_disk * parts.pcie_bytes_per_s + network.gpu_bytes_per_s()
    running_mhz = (twin.clock * parts.sm_max_mhz / CLOCK_STEP_MHZ).round() * CLOCK_STEP_MHZ
    mem_used = np.where(twin.busy, twin.workload.mem_share[job] * parts.mem_bytes, 5e8)
    no_mem_sensor = np.isinf(parts.slowdown_mem_c)
    return {
        "power_w": twin.power_w.round(2),
        "power_limit_w": twin.power_limit_w,
        "energy_j": twin.energy_j.round(3),
        "temp_c": twin.temp_c.round(),
        "temp_mem_c": np.where(no_mem_sensor, np.nan, twin.temp_mem_c.round()),
        "temp_limit_c": parts.slowdown_c,
        "sm_mhz": np.where(twin.busy, running_mhz, parts.sm_idle_mhz),
        "mem_mhz": parts.mem_mhz,
        "util": (100.0 * np.minimum(work / 0.55, 1.0)).round(),
        "mem_used": mem_used.astype(np.int64),
        "throttle": twin.throttle,
        "nvlink_tx": nvlink,
        "nvlink_rx": nvlink,
        "pcie_tx": pcie.round(),
        "pcie_rx": (0.8 * pcie).round(),
        "ecc": twin.ecc.copy(),
    } | {f"throttle_{cause.token}_ns": ns.copy() for cause, ns in twin.throttle_ns.items()}


def _host_arrays(twin: Twin, network: Network) -> Mapping[str, NDArray[Any]]:
    """Return the columns of all nodes. ``power_w`` is the draw of the node without its GPUs."""
    by_node = (-1, GPUS_PER_NODE)
    work = twin.activity.reshape(by_node).mean(axis=1).clip(0.0, 1.0)
    writes = twin.load.checkpointing[twin.job_of_node]
    net = network.gpu_bytes_per_s().reshape(by_node).sum(axis=1) + np.where(writes, 4e9, 2e6)
    mem_total = twin.parts.node_cpu_mem_bytes
    return {
        "cpu_util": (3.0 + 32.0 * work).round(1),
        "mem_used": (mem_total * (0.04 + 0.3 * work)).astype(np.int64),
        "mem_total": mem_total.astype(np.int64),
        "net_rx_bytes_per_s": net.round(),
        "net_tx_bytes_per_s": net.round(),
        "psi_cpu": (1.5 * work).round(2),
        "psi_mem": (0.2 * work).round(2),
        "psi_io": np.where(writes, 18.0, 0.3 * work).round(2),
        "power_w": twin.host_w.round(1),
    }
