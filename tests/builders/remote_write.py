"""Requests of Prometheus remote write, put together byte by byte from protobuf's wire format.

Not with the messages of ``telemetry.ingest.messages``: what reads them is what is tested.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import cramjam

__all__ = ["STALE", "TimeSeries", "request_1", "request_2", "series_1", "snappy"]

#: The value that marks the end of a series: a NaN of its own.
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]

#: Labels, and samples as (value, Unix ms).
TimeSeries = tuple[Mapping[str, str], Iterable[tuple[float, int]]]

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def snappy(body: bytes) -> bytes:
    """Return ``body`` in snappy's block format."""
    return bytes(cramjam.snappy.compress_raw(body))


def request_1(series: Iterable[TimeSeries]) -> bytes:
    """Return a ``prometheus.WriteRequest``."""
    return b"".join(_field(1, series_1(labels, samples)) for labels, samples in series)


def series_1(labels: Mapping[str, str], samples: Iterable[tuple[float, int]]) -> bytes:
    encoded = [
        _field(1, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in sorted(labels.items())
    ]
    return b"".join(encoded) + _samples(samples)


def request_2(series: Iterable[TimeSeries]) -> bytes:
    """Return an ``io.prometheus.write.v2.Request``."""
    symbols: dict[str, int] = {"": 0}
    found = []
    for labels, samples in series:
        refs = [
            symbols.setdefault(text, len(symbols))
            for pair in sorted(labels.items())
            for text in pair
        ]
        metadata = _field(5, _key(1, _VARINT) + _varint(2))
        found.append(_field(1, b"".join(map(_varint, refs))) + _samples(samples) + metadata)
    texts = b"".join(_field(4, text.encode()) for text in symbols)
    return texts + b"".join(_field(5, each) for each in found)


def _samples(samples: Iterable[tuple[float, int]]) -> bytes:
    return b"".join(
        _field(
            2,
            _key(1, _FIXED64) + struct.pack("<d", value) + _key(2, _VARINT) + _varint(ts_ms),
        )
        for value, ts_ms in samples
    )


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
