"""Prometheus remote write 1.0, encoded by NumPy: bodies that differ in times and values only.

A body is one message ``WriteRequest`` (field 1: TimeSeries; in it 1: Label, 2: Sample), with one
sample for each series, under snappy's block format. Labels are written once; the samples' bytes
have fixed places, since a double has 8 bytes and a time in milliseconds 6 as a varint until 2109.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cramjam
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Labels = Mapping[str, str]

HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_LENGTH_DELIMITED = 2
_SAMPLE_BYTES = 16
_TS_BYTES = 6
_SERIES, _LABELS, _SAMPLES = 1, 1, 2
_NAME, _VALUE = 1, 2


class Body:
    """The request for a fixed list of series, which is filled with their values again and again."""

    def __init__(self, series: Sequence[Labels]) -> None:
        parts: list[bytes] = []
        ends: list[int] = []
        end = 0
        for labels in series:
            message = _series(labels)
            end += len(message)
            parts.append(message)
            ends.append(end)
        self._template = np.frombuffer(b"".join(parts), dtype=np.uint8)
        # A sample is the last of its series: a tag and a double, a tag and a time.
        first = np.array(ends) - _SAMPLE_BYTES
        self._value_places = (first + 1)[:, None] + np.arange(8)
        self._ts_places = (first + 10)[:, None] + np.arange(_TS_BYTES)

    def filled(self, ts_ms: Array, values: Array) -> bytes:
        """Return the body with one sample for each series, compressed."""
        out = self._template.copy()
        out[self._value_places] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
        out[self._ts_places] = _varints(ts_ms.astype(np.int64))
        return bytes(cramjam.snappy.compress_raw(out.tobytes()))


def _series(labels: Labels) -> bytes:
    """Return one TimeSeries with an empty sample. Labels come in order, as the protocol asks."""
    encoded = [
        _field(_LABELS, _field(_NAME, name.encode()) + _field(_VALUE, labels[name].encode()))
        for name in sorted(labels)
    ]
    sample = bytes([_VALUE_TAG]) + bytes(8) + bytes([_TS_TAG]) + bytes(_TS_BYTES)
    return _field(_SERIES, b"".join(encoded) + _field(_SAMPLES, sample))


#: Field 1 as a 64-bit value, field 2 as a varint.
_VALUE_TAG = 1 << 3 | 1
_TS_TAG = 2 << 3


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | _LENGTH_DELIMITED]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varints(numbers: Array) -> Array:
    """Return numbers of 36 to 42 bits as varints, a row of six bytes each."""
    sevens: Array = (numbers[:, None] >> (7 * np.arange(_TS_BYTES))) & 0x7F
    sevens[:, :-1] |= 0x80
    return sevens.astype(np.uint8)
