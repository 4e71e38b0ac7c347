"""Bandwidth and latency of single links: from line rates, lanes, bundles, and fiber."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import numpy as np

from physics._choice import chosen
from physics.law import Bound, Count, NonNegative, Positive, Values, law

#: Speed of light in glass, rounded as textbooks do: two thirds of that in vacuum.
FIBER_M_PER_S = 2.0e8

Encoding: TypeAlias = Literal["none", "8b/10b", "64b/66b", "128b/130b"]
Directions: TypeAlias = Annotated[
    Values, Bound("1 (per direction) or 2 (total)", low=1.0, high=2.0, whole=True)
]
Velocity: TypeAlias = Annotated[
    Values,
    Bound("above 0 and at most the speed of light", low=0.0, above_low=True, high=299_792_458.0),
]

#: Payload bits over bits on the wire.
_PAYLOAD: Mapping[str, float] = {
    "none": 1.0,
    "8b/10b": 8 / 10,
    "64b/66b": 64 / 66,
    "128b/130b": 128 / 130,
}


@law
def transfer_s(
    *, message_bytes: NonNegative, link_bytes_per_s: Positive, latency_s: NonNegative
) -> Values:
    """Return the time of one message over one link, s: ``alpha + M/B``.

    All arguments broadcast. An empty message takes the latency. Valid for one message at a time on
    an otherwise idle link. Source: Hockney 1994 (the alpha-beta model).
    """
    return latency_s + np.divide(message_bytes, link_bytes_per_s)


@law
def line_rate_bytes_per_s(
    *, line_rate_bits_per_s: Positive, directions: Directions = 1.0
) -> Values:
    """Return bytes per second of a link sold by its line rate, B/s: ``rate / 8 · directions``.

    Line rates of Ethernet and InfiniBand are per direction and after encoding: 400 Gbit/s is
    50 GB/s each way. ``directions=2`` gives the total of both. Headers and flow control still take
    some percent of it. All arguments broadcast.
    """
    return np.multiply(line_rate_bits_per_s, directions) / 8.0


@law
def lanes_bytes_per_s(
    *,
    lanes: Count,
    lane_rate_bits_per_s: Positive,
    encoding: Encoding = "none",
    directions: Directions = 1.0,
) -> Values:
    """Return bytes per second of parallel lanes, B/s: ``lanes · rate · payload / 8 · directions``.

    ``lane_rate_bits_per_s`` is the rate on the wire per direction: 32e9 for PCIe Gen5 (32 GT/s).
    ``encoding`` leaves its payload of it: 8b/10b (PCIe Gen1 and 2) 80 %, 64b/66b 97 %,
    128b/130b (PCIe Gen3 to 5) 98.5 %; ``none`` gives the raw rate. All arguments broadcast.
    """
    payload = chosen("encoding", encoding, _PAYLOAD)
    return np.multiply(lanes, lane_rate_bits_per_s) * payload / 8.0 * directions


@law
def links_bytes_per_s(
    *, links: Count, link_total_bytes_per_s: Positive, directions: Directions = 1.0
) -> Values:
    """Return bytes per second of a GPU's bundle of links, B/s: ``links · total / 2 · directions``.

    ``link_total_bytes_per_s`` is one link with both its directions, as vendors state it: 50e9 for
    NVLink 4. 18 of those are 450 GB/s per direction, which the laws here want, and 900 GB/s in
    total (``directions=2``), which data sheets print. All arguments broadcast.
    """
    return np.multiply(links, link_total_bytes_per_s) / 2.0 * directions


@law
def fiber_latency_s(
    *, distance_m: NonNegative, velocity_m_per_s: Velocity = FIBER_M_PER_S
) -> Values:
    """Return the time of light along a fiber, one way, s: ``t = d/v``.

    ``distance_m`` is the length of the fiber, often half as long again as the way as the crow
    flies. A round trip takes twice as long. The velocity is c over the index of the glass, some
    2e8 m/s. Switches and queues come on top. All arguments broadcast.
    """
    return np.divide(distance_m, velocity_m_per_s)


@law
def bandwidth_ratio(*, fast_bytes_per_s: Positive, slow_bytes_per_s: Positive) -> Values:
    """Return how many times faster one link is than another: ``B_fast / B_slow``.

    Both per direction, or both in total: NVLink 4 over InfiniBand NDR is 450/50 = 9, not 900/50.
    All arguments broadcast.
    """
    return np.divide(fast_bytes_per_s, slow_bytes_per_s)
