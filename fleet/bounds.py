"""The greatest values of the inventory: for its models, its files, and so for the REST API.

Each is far above what is built, and far below what arithmetic and storage can carry. Upper ends
also keep NaN and infinity out, which pass many a comparison.
"""

from __future__ import annotations

__all__ = [
    "COLDEST_C",
    "HOTTEST_C",
    "MOST_BITS_PER_S",
    "MOST_BYTES",
    "MOST_BYTES_PER_S",
    "MOST_CORES",
    "MOST_MHZ",
    "MOST_PART_W",
    "MOST_PLACE_W",
    "MOST_SECONDS",
]

#: Of a GPU, or of a node without its GPUs, W.
MOST_PART_W = 1e6
#: Of a rack, a power domain, a cooling zone or a site, W.
MOST_PLACE_W = 1e12
COLDEST_C, HOTTEST_C = -274.0, 1000.0
MOST_MHZ = 1e5
#: Fits into a bigint, the type of its column.
MOST_BYTES = 2**62
MOST_BYTES_PER_S = 1e15
#: Of a node.
MOST_CORES = 4096
MOST_BITS_PER_S = 1e16
#: Of a latency, s.
MOST_SECONDS = 1e6
