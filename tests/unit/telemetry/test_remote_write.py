"""Both versions of remote write, from bytes to series."""

from __future__ import annotations

import math
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import MAX_BATCH_BYTES, BatchError
from telemetry.ingest import remote_write
from telemetry.ingest.errors import TooLarge, UnsupportedType
from tests.builders.remote_write import STALE, request_1, request_2, series_1, snappy

POWER = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "3", "Hostname": "n1"}
OTHER = {"__name__": "go_goroutines", "instance": "n1:9400"}
REQUESTS = {1: request_1, 2: request_2}


@pytest.mark.parametrize("version", [1, 2])
def test_series_come_with_their_labels_and_samples(version: int) -> None:
    body = REQUESTS[version]([(POWER, [(412.5, 1_790_000_000_123), (0.0, -5)]), (OTHER, [(7, 0)])])
    decoded = remote_write.decode(body, version)
    power, other = decoded.series
    assert (power.labels, power.samples) == (POWER, [(1_790_000_000.123, 412.5), (-0.005, 0.0)])
    assert power.told is not None
    assert power.told.column == "power_w"
    assert (other.labels, other.told, other.samples) == (OTHER, None, [(0.0, 7.0)])
    assert decoded.samples == 3


@pytest.mark.parametrize("version", [1, 2])
def test_the_mark_of_an_ended_series_is_no_number(version: int) -> None:
    decoded = remote_write.decode(REQUESTS[version]([(POWER, [(STALE, 1)])]), version)
    ((_, value),) = decoded.series[0].samples
    assert math.isnan(value)


@pytest.mark.parametrize("version", [1, 2])
def test_an_empty_request_has_no_series(version: int) -> None:
    assert remote_write.decode(b"", version) == remote_write.Decoded()


def test_histograms_and_exemplars_are_counted() -> None:
    series = series_1(POWER, [(1, 1)]) + b"\x1a\x00" + b"\x22\x00\x22\x02\x08\x01"
    decoded = remote_write.decode(b"\x0a" + bytes([len(series)]) + series, 1)
    assert (decoded.samples, decoded.exemplars, decoded.histograms) == (1, 1, 2)


def test_one_text_that_is_none_costs_its_own_series_alone() -> None:
    bad = series_1(POWER, [(1, 1)]).replace(b"n1", b"\xff\xfe")
    body = b"\x0a" + bytes([len(bad)]) + bad + request_1([(OTHER, [(7, 0)])])
    decoded = remote_write.decode(body, 1)
    assert [each.labels for each in decoded.series] == [OTHER]
    assert decoded.unreadable == 1


@pytest.mark.parametrize("refs", [b"\x01", b"\x01\x63"])
def test_references_that_lead_nowhere_cost_their_own_series_alone(refs: bytes) -> None:
    good = request_2([(POWER, [(1, 1)])])
    bad = b"\x0a" + bytes([len(refs)]) + refs + b"\x12\x00"
    decoded = remote_write.decode(good + b"\x2a" + bytes([len(bad)]) + bad, 2)
    assert [each.labels for each in decoded.series] == [POWER]
    assert decoded.unreadable == 1


def test_labels_of_the_exporter_come_before_those_of_its_target() -> None:
    labels = {**POWER, "pod": "dcgm-exporter-x", "exported_pod": "train-0", "exported_node": "n7"}
    (series,) = remote_write.decode(request_1([(labels, [(1, 1)])]), 1).series
    assert (series.labels["pod"], series.labels["node"]) == ("train-0", "n7")


def test_the_pod_of_the_exporter_is_nobodys_workload() -> None:
    labels = {**POWER, "pod": "dcgm-exporter-x"}
    (series,) = remote_write.decode(request_1([(labels, [(1, 1)])]), 1).series
    assert "pod" not in series.labels


@pytest.mark.parametrize(
    ("content_type", "version"),
    [
        ("application/x-protobuf", 1),
        ("application/x-protobuf;proto=prometheus.WriteRequest", 1),
        ("application/x-protobuf;proto=io.prometheus.write.v2.Request", 2),
        ('Application/X-Protobuf; proto="io.prometheus.write.v2.Request"', 2),
    ],
)
def test_the_content_type_tells_the_version(content_type: str, version: int) -> None:
    assert remote_write.version_of(content_type) == version


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "application/x-protobuf;proto=io.prometheus.write.v3.Request"],
)
def test_another_content_type_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedType):
        remote_write.version_of(content_type)


def test_snappys_block_format_is_undone() -> None:
    assert remote_write.uncompress(snappy(b"abc" * 100), "snappy") == b"abc" * 100


@pytest.mark.parametrize("body", [b"", b"\xff" * 20, snappy(b"abc" * 100)[:-3]])
def test_what_is_no_snappy_is_refused(body: bytes) -> None:
    with pytest.raises(BatchError) as refused:
        remote_write.uncompress(body, "snappy")
    assert refused.value.error.code == "malformed_body"


def test_the_framed_format_is_refused() -> None:
    with pytest.raises(BatchError):
        remote_write.uncompress(bytes(cramjam.snappy.compress(b"abc" * 100)), "snappy")


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(TooLarge):
        remote_write.uncompress(snappy(bytes(MAX_BATCH_BYTES + 1)), "snappy")


def test_another_encoding_is_refused() -> None:
    with pytest.raises(UnsupportedType):
        remote_write.uncompress(b"", "zstd")


@given(body=st.binary(max_size=200), version=st.sampled_from([1, 2]))
def test_whatever_the_body_is_it_is_decoded_or_refused(body: bytes, version: int) -> None:
    for way in (remote_write.decode, lambda b, _: remote_write.uncompress(b, "snappy")):
        with suppress(BatchError):
            way(body, version)


@given(
    body=st.binary(max_size=20),
    version=st.sampled_from([1, 2]),
    at=st.integers(0, 200),
    size=st.integers(0, 5),
)
def test_whatever_becomes_of_a_body_on_its_way_it_is_decoded_or_refused(
    body: bytes, version: int, at: int, size: int
) -> None:
    whole = REQUESTS[version]([(POWER, [(412.5, 1_790_000_000_123)]), (OTHER, [(7, 0)])])
    with suppress(BatchError):
        remote_write.decode(whole[:at] + body + whole[at + size :], version)
