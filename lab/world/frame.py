"""The readings of a twin, as the live frame that policies and admission look at.

Readings are bent by what is wrong with the sensors: silent nodes keep their last one, stuck ones
repeat it as if it were new, biased ones are off, and clocks that are ahead or behind stamp it with
another time. Meters on racks, feeds and zones are read by their sites and tell the truth. From a
site that is cut off nothing comes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.tables import METER_KINDS, METER_TARGETS, FleetArrays
from lab.twin import Twin
from lab.twin.network import Network
from lab.twin.storage import REQUEST_S
from lab.world.fleet_arrays import Rows
from telemetry.live_frame import LiveFrame, never_seen

__all__ = ["MAX_FUTURE_S", "Sensors", "frame_of"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: Readings that are further ahead of the server's clock are not taken, s: see ``intake``.
MAX_FUTURE_S = 30.0
#: Activity at which a GPU says that it is busy all of the time.
_FULL_UTIL_ACTIVITY = 0.55
_TEMPERATURE = METER_KINDS.index("temperature")
_ON_RACK = METER_TARGETS.index("rack")
_ON_ZONE = METER_TARGETS.index("cooling_zone")
_ON_DOMAIN = METER_TARGETS.index("power_domain")


class Sensors:
    """All readings of a twin. One reading of everything at each :meth:`read`."""

    def __init__(
        self,
        twin: Twin,
        network: Network,
        arrays: FleetArrays,
        rows: Rows,
        *,
        epoch_s: float = 0.0,
    ) -> None:
        """``epoch_s``: Unix time of the twin's second 0."""
        self.epoch_s = epoch_s
        self.twin, self.network, self.arrays, self.rows = twin, network, arrays, rows
        sizes = {
            "gpu": len(arrays.gpus),
            "host": len(arrays.nodes),
            "link": len(arrays.links),
            "meter": len(arrays.meters),
            # One mount for each endpoint, with its id: see ``policies.headroom.inputs.Mounts``.
            "storage": len(arrays.storage),
        }
        self._records = {kind: never_seen(kind, size + 1) for kind, size in sizes.items()}
        self._node = arrays.gpus.node
        self._site_of_node = rows.site[arrays.racks.site[arrays.nodes.rack]]
        self._storage_site = rows.site[arrays.storage.site]
        self._is_temperature = arrays.meters.kind == _TEMPERATURE
        self._meters_on = {
            place: np.flatnonzero(
                (arrays.meters.target_kind == place) & (arrays.meters.kind != _TEMPERATURE)
            )
            for place in (_ON_RACK, _ON_DOMAIN)
        }
        on_zone = arrays.meters.target_kind == _ON_ZONE
        self._zone_meters = np.flatnonzero(self._is_temperature & on_zone)
        on_rack = arrays.meters.target_kind == _ON_RACK
        self._inlet_meters = np.flatnonzero(self._is_temperature & on_rack)
        self._racks_in_zone = np.bincount(twin.fleet.row_of_rack)
        self._version = 0

    def read(self, now: float) -> LiveFrame:
        """Return the live frame at ``now`` (Unix s) after everything that speaks was read."""
        self._version += 1
        self._read_nodes(now)
        self._read_sites(now)
        # A copy: headroom looks at its frame when it is asked, and that may be later.
        return LiveFrame(
            str(self._version), {kind: array.copy() for kind, array in self._records.items()}
        )

    # --- What nodes' own agents read -------------------------------------------------------------

    def _read_nodes(self, now: float) -> None:
        twin, rows, conditions = self.twin, self.rows, self.twin.conditions
        skew_s = conditions.clock_skew_s[rows.node]
        cut_off = conditions.site_isolated[self._site_of_node]
        heard = ~(twin.silent[rows.node] | cut_off) & (skew_s <= MAX_FUTURE_S)
        stamp = now + skew_s
        moves = heard & ~conditions.stuck[rows.node]
        bias, bias_c = conditions.power_bias[rows.node], conditions.temp_bias_c[rows.node]
        self._read_hosts(stamp, heard, moves, bias)
        self._read_gpus(stamp, heard, moves, bias, bias_c)

    def _read_hosts(self, stamp: Array, heard: Bools, moves: Bools, bias: Array) -> None:
        hosts = self._records["host"][1:]
        hosts["ts"][heard] = stamp[heard]
        hosts["power_w"][moves] = (self.twin.host_w[self.rows.node] * bias)[moves]

    def _read_gpus(
        self, stamp: Array, heard: Bools, moves: Bools, bias: Array, bias_c: Array
    ) -> None:
        twin, rows, node = self.twin, self.rows.gpu, self._node
        gpus, spoken, fresh = self._records["gpu"][1:], heard[node], moves[node]
        gpus["ts"][spoken] = stamp[node][spoken]
        busy = twin.busy[rows]
        no_sensor = np.isinf(twin.parts.slowdown_mem_c[rows])
        values: dict[str, Any] = {
            "power_w": twin.power_w[rows] * bias[node],
            "power_limit_w": twin.power_limit_w[rows],
            "temp_c": (twin.temp_c[rows] + bias_c[node]).round(),
            "temp_mem_c": np.where(
                no_sensor, np.nan, (twin.temp_mem_c[rows] + bias_c[node]).round()
            ),
            "temp_limit_c": twin.parts.slowdown_c[rows],
            "sm_mhz": np.where(
                busy, (twin.clock * twin.parts.sm_max_mhz)[rows], twin.parts.sm_idle_mhz[rows]
            ),
            "util": 100.0 * np.minimum(twin.activity[rows] / _FULL_UTIL_ACTIVITY, 1.0),
            "throttle": twin.throttle[rows],
            "job_id": twin.job_of_gpu[rows],
        }
        for name, value in values.items():
            gpus[name][fresh] = value[fresh]

    # --- What sites' collectors read -------------------------------------------------------------

    def _read_sites(self, now: float) -> None:
        self._read_links(now)
        self._read_meters(now)
        self._read_storage(now)

    def _read_links(self, now: float) -> None:
        network, rows, conditions = self.network, self.rows.link, self.twin.conditions
        links = self._records["link"][1:]
        heard = ~conditions.site_isolated[network.links.site][rows]
        links["ts"][heard] = now
        for name in ("tx_bytes_per_s", "rx_bytes_per_s", "latency_s", "retransmits_per_s"):
            links[name][heard] = getattr(network, name)[rows][heard]

    def _read_meters(self, now: float) -> None:
        twin, meter = self.twin, self.rows.meter
        meters = self._records["meter"][1:]
        site_of = {
            _ON_RACK: twin.fleet.site_of_rack,
            _ON_DOMAIN: twin.domains.site,
        }
        watts = {_ON_RACK: twin.rack_w, _ON_DOMAIN: twin.domain_w}
        for place, on in self._meters_on.items():
            target = meter[on]
            heard = ~twin.conditions.site_isolated[site_of[place][target]]
            meters["ts"][on[heard]] = now
            meters["power_w"][on[heard]] = watts[place][target[heard]]
        inlet_c = np.bincount(twin.fleet.row_of_rack, weights=twin.inlet_c) / self._racks_in_zone
        zone = meter[self._zone_meters]
        site_of_zone = twin.fleet.site_of_rack[
            np.searchsorted(twin.fleet.row_of_rack, np.arange(len(self._racks_in_zone)))
        ]
        heard = ~twin.conditions.site_isolated[site_of_zone[zone]]
        meters["ts"][self._zone_meters[heard]] = now
        meters["temp_c"][self._zone_meters[heard]] = inlet_c[zone[heard]].round(1)
        rack = meter[self._inlet_meters]
        heard = ~twin.conditions.site_isolated[twin.fleet.site_of_rack[rack]]
        meters["ts"][self._inlet_meters[heard]] = now
        meters["temp_c"][self._inlet_meters[heard]] = twin.inlet_c[rack[heard]].round(1)

    def _read_storage(self, now: float) -> None:
        conditions, site = self.twin.conditions, self._storage_site
        mounts = self._records["storage"][1:]
        heard = ~conditions.site_isolated[site]
        took_s = (REQUEST_S + conditions.storage_latency_s) / (
            conditions.storage_share * (1.0 - conditions.storage_loss.clip(0.0, 0.99))
        ).clip(1e-3)
        mounts["ts"][heard] = now
        mounts["fsync_s"][heard] = took_s[site][heard]
        mounts["read_s"][heard] = took_s[site][heard]


def frame_of(
    twin: Twin, network: Network, arrays: FleetArrays, rows: Rows, *, now: float
) -> LiveFrame:
    """Return one first reading of everything at ``now`` (Unix s)."""
    return Sensors(twin, network, arrays, rows).read(now)
