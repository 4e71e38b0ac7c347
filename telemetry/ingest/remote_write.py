"""Prometheus remote write 1.0 and 2.0: from a request's body to series."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import lru_cache
from typing import Any

import cramjam
from google.protobuf.message import DecodeError

from headroom.contracts import MAX_BATCH_BYTES, BatchError
from headroom.dcgm import Told
from telemetry.ingest.errors import UnsupportedType, malformed, too_large
from telemetry.ingest.messages import Label, Request, WriteRequest
from telemetry.ingest.series import Series, as_exported, told_by

__all__ = ["Decoded", "decode", "uncompress", "unreadable_labels", "version_of"]

_V1 = "prometheus.WriteRequest"
_V2 = "io.prometheus.write.v2.Request"
#: So many series are known by the bytes of their labels, some 2 KB each. Going through labels costs
#: four times as much as looking them up.
_KNOWN_SERIES = 16_384


@dataclass
class Decoded:
    """The series of a request, and how much of it is of no kind that is kept."""

    series: list[Series] = field(default_factory=list)
    samples: int = 0
    histograms: int = 0
    exemplars: int = 0
    #: samples of series whose labels cannot be read
    unreadable: int = 0


def version_of(content_type: str) -> int:
    """Return the version of the protocol by Content-Type: 1 or 2."""
    header = Message()
    header["Content-Type"] = content_type
    version = {_V1: 1, _V2: 2}.get(str(header.get_param("proto", _V1)))
    if header.get_content_type() != "application/x-protobuf" or version is None:
        raise UnsupportedType(
            "unsupported_content_type",
            f"Content-Type {content_type!r} is not known",
            field="Content-Type",
            hint=f"send application/x-protobuf, with ;proto={_V2} for version 2.0",
        )
    return version


def uncompress(body: bytes, encoding: str) -> bytes:
    """Undo snappy's block format, never making more than the limit out of a small body."""
    if encoding.strip().lower() != "snappy":
        raise UnsupportedType(
            "unsupported_content_encoding",
            f"Content-Encoding {encoding!r} is not known",
            field="Content-Encoding",
            hint="send snappy, in its block format",
        )
    try:
        if cramjam.snappy.decompress_raw_len(body) > MAX_BATCH_BYTES:
            raise too_large()
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as exc:
        raise malformed("snappy", str(exc)) from exc


def decode(body: bytes, version: int) -> Decoded:
    """Return the series of an uncompressed request."""
    try:
        if version == 1:
            return _decoded(_series_1(WriteRequest.FromString(body)))
        return _decoded(_series_2(Request.FromString(body)))
    except DecodeError as exc:
        raise malformed("protobuf", str(exc)) from exc


def unreadable_labels() -> BatchError:
    """Return the error of series whose labels are no text, or refer to symbols beyond the list."""
    return BatchError(
        "malformed_labels",
        "the labels of a series cannot be read",
        hint="labels are UTF-8; of version 2.0 an even number of places in the symbols",
    )


#: A series of either version, with its labels by name; None where they cannot be read.
_Found = tuple[Any, "Known | None"]


@dataclass(frozen=True, slots=True)
class Known:
    """Labels that were read once."""

    labels: Mapping[str, str]
    told: Told | None


def _decoded(found: Iterator[_Found]) -> Decoded:
    decoded = Decoded()
    for each, known in found:
        decoded.samples += len(each.samples)
        decoded.histograms += len(each.histograms)
        decoded.exemplars += len(each.exemplars)
        if known is None:
            decoded.unreadable += len(each.samples)
            continue
        samples = [(sample.timestamp / 1e3, sample.value) for sample in each.samples]
        decoded.series.append(Series(known.labels, known.told, samples))
    return decoded


def _series_1(request: Any) -> Iterator[_Found]:
    for each in request.timeseries:
        yield each, _read_labels(tuple(each.labels))


def _series_2(request: Any) -> Iterator[_Found]:
    symbols = list(request.symbols)
    for each in request.timeseries:
        try:
            yield each, _read_symbols(tuple([symbols[place] for place in each.labels_refs]))
        except IndexError:
            yield each, None


@lru_cache(maxsize=_KNOWN_SERIES)
def _read_labels(encoded: tuple[bytes, ...]) -> Known | None:
    """Read the labels of version 1: each is a message."""
    try:
        labels = [Label.FromString(each) for each in encoded]
    except DecodeError:
        return None
    return _known([(label.name, label.value) for label in labels])


@lru_cache(maxsize=_KNOWN_SERIES)
def _read_symbols(symbols: tuple[bytes, ...]) -> Known | None:
    """Read the labels of version 2: names and values in turn."""
    if len(symbols) % 2:
        return None
    return _known(list(zip(symbols[::2], symbols[1::2], strict=True)))


def _known(pairs: list[tuple[bytes, bytes]]) -> Known | None:
    try:
        # Interned, since series share most of their labels.
        labels = {sys.intern(n.decode()): sys.intern(v.decode()) for n, v in pairs}
    except UnicodeDecodeError:
        return None
    labels = as_exported(labels)
    return Known(labels, told_by(labels.get("__name__", ""), labels))
