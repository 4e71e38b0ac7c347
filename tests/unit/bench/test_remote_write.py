"""Bodies of remote writes that benchmarks send are what the protocol says, byte by byte."""

from __future__ import annotations

import cramjam
import numpy as np

from bench.remote_write import Body
from tests.builders.remote_write import request_1

SERIES = [
    {"__name__": "gpu_power_w", "instance": "oslo-a01-n1", "gpu": "0"},
    # Its length needs two bytes.
    {"__name__": "gpu_" + "x" * 200, "instance": "ø", "gpu": "12"},
]
#: The first time that has six bytes as a varint, one of today, and the last one.
TIMES_MS = [2**35, 1_795_000_000_123, 2**42 - 1]


def test_a_body_is_the_request_of_its_series_and_may_be_filled_again() -> None:
    body = Body(SERIES)
    for ts_ms in TIMES_MS:
        values = [float(ts_ms % 1000) + 0.125, -1.5]
        filled = body.filled(np.array([ts_ms, ts_ms]), np.array(values))
        expected = request_1(
            (labels, [(value, ts_ms)]) for labels, value in zip(SERIES, values, strict=True)
        )
        assert bytes(cramjam.snappy.decompress_raw(filled)) == expected
