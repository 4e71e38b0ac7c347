"""Links: what is left of each, for whom, and how well it does."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleet.groups import ratio
from fleet.tables import LINK_KINDS, FleetArrays
from policies.headroom.columns import Bools, Floats
from policies.headroom.inputs import Limits, Past, Reservations
from policies.headroom.trend import exhausted_in_s
from policies.scopes import ScopeKind
from telemetry.live_frame import LiveFrame, is_fresh

_WAN = LINK_KINDS.index("wan")
_FIELDS = ("ts", "tx_bytes_per_s", "rx_bytes_per_s", "retransmits_per_s", "latency_s")


def busiest_bits_per_s(fleet: FleetArrays, frame: LiveFrame) -> tuple[Floats, Floats]:
    """Return what the busier direction of each link carried when it was read last, and when.

    NaN and 0 where it was never read.
    """
    record = frame.fields("link", fleet.links.ids, "ts", "tx_bytes_per_s", "rx_bytes_per_s")
    busiest = np.fmax(record["tx_bytes_per_s"], record["rx_bytes_per_s"]).astype(np.float64)
    return busiest * 8.0, record["ts"]


def columns(
    fleet: FleetArrays,
    frame: LiveFrame,
    past: Past,
    reservations: Reservations,
    limits: Limits,
    *,
    now: float,
    stale_after_s: float,
) -> dict[str, Any]:
    """Return the columns of links.

    A link that fell silent is taken to be full. Of one that was never heard nothing is known: few
    fleets read all of their links.
    """
    links = fleet.links
    record = frame.fields("link", links.ids, *_FIELDS)
    fresh = is_fresh(record["ts"], now, stale_after_s)
    capacity = links.capacity_bits_per_s
    load = _load(fleet, frame, past, fresh)
    reserved = reservations.link_bits_per_s
    left = capacity - load - reserved
    bulk_share = np.minimum(1.0 - links.control_share, limits.link_share)
    slope = past.slope(ScopeKind.LINK, len(links))
    latency = np.where(fresh, record["latency_s"], np.nan)
    resent = record["retransmits_per_s"].astype(np.float64)
    return {
        "age_s": np.where(record["ts"] > 0, now - record["ts"], np.nan),
        "stale": ~fresh,
        "link_capacity_bits_per_s": capacity,
        "link_load_bits_per_s": load,
        "link_reserved_bits_per_s": reserved,
        "link_headroom_bits_per_s": left,
        "link_bulk_headroom_bits_per_s": left - (1.0 - bulk_share) * capacity,
        "link_control_bits_per_s": links.control_share * capacity,
        "link_use": ratio(load + reserved, capacity),
        "link_slope_bits_per_s2": slope,
        "link_exhausted_in_s": exhausted_in_s(left, slope),
        "retransmits_per_s": np.where(fresh, resent, np.nan),
        "latency_s": latency,
        "latency_inflation": ratio(latency, np.nan_to_num(links.latency_s)),
        "is_wan": links.kind == _WAN,
    }


def _load(fleet: FleetArrays, frame: LiveFrame, past: Past, fresh: Bools) -> Floats:
    now_bits_per_s, read_at = busiest_bits_per_s(fleet, frame)
    seen = np.fmax(now_bits_per_s, past.link_bits_per_s)
    known = fresh & ~np.isnan(now_bits_per_s)
    silent = np.where(read_at > 0, np.fmax(fleet.links.capacity_bits_per_s, seen), np.nan)
    return np.where(known, seen, silent)
