"""Links: the bandwidth left on each, in all and for bulk traffic; retransmits, and latency."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleet.groups import ratio
from fleet.tables import LINK_KINDS
from headroom.traffic import TrafficClass, reading_of
from policies.headroom.columns import Floats
from policies.headroom.inputs import Limits, Past, Reservations
from policies.headroom.trend import exhausted_in_s
from policies.scopes import ScopeKind
from telemetry.live_frame import Readings

_WAN = LINK_KINDS.index("wan")


def busiest_bits_per_s(readings: Readings) -> tuple[Floats, Floats]:
    """Return the last read traffic of the busier direction of each link, and when it was read.

    NaN and 0 where it was never read.
    """
    names = ("ts", "tx_bytes_per_s", "rx_bytes_per_s")
    record = readings.frame.fields("link", readings.fleet.links.ids, *names)
    busiest = np.fmax(record["tx_bytes_per_s"], record["rx_bytes_per_s"]).astype(np.float64)
    return busiest * 8.0, record["ts"]


def sent_by_class_bits_per_s(readings: Readings, row: int) -> dict[str, float]:
    """Return what a link sends of each class of traffic that its host or the fabric tells now."""
    names = {str(each): reading_of(each) for each in TrafficClass}
    ids = readings.fleet.links.ids[[row]]
    record = readings.frame.fields("link", ids, "ts", *names.values())
    if not readings.is_fresh(record["ts"])[0]:
        return {}
    sent = {each: 8.0 * float(record[name][0]) for each, name in names.items()}
    return {each: bits_per_s for each, bits_per_s in sent.items() if not np.isnan(bits_per_s)}


def columns(
    readings: Readings, past: Past, reservations: Reservations, limits: Limits
) -> dict[str, Any]:
    """Return the columns of links.

    A link that fell silent is taken to be full. Of one that was never heard nothing is known: few
    fleets read all of their links.
    """
    links = readings.fleet.links
    record = readings.frame.fields("link", links.ids, "ts", "retransmits_per_s", "latency_s")
    fresh = readings.is_fresh(record["ts"])
    capacity = links.capacity_bits_per_s
    load = _load(readings, past)
    reserved = reservations.link_bits_per_s
    left = capacity - load - reserved
    bulk_share = np.minimum(1.0 - links.control_share, limits.link_share)
    slope = past.slope(ScopeKind.LINK, len(links))
    latency = np.where(fresh, record["latency_s"], np.nan)
    resent = record["retransmits_per_s"].astype(np.float64)
    return {
        "age_s": readings.age_s(record["ts"]),
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


def _load(readings: Readings, past: Past) -> Floats:
    now_bits_per_s, read_at = busiest_bits_per_s(readings)
    seen = np.fmax(now_bits_per_s, past.link_bits_per_s)
    known = readings.is_fresh(read_at) & ~np.isnan(now_bits_per_s)
    full = np.fmax(readings.fleet.links.capacity_bits_per_s, seen)
    return np.where(known, seen, np.where(read_at > 0, full, np.nan))
