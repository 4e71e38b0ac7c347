"""Whose a series is, what it tells, and which samples form one row."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from telemetry.ingest import readings as module
from telemetry.ingest.readings import Places, Readings
from telemetry.ingest.refusals import TimeLimits
from telemetry.ingest.rows import Place, Rows
from telemetry.ingest.series import Series, told_by
from tests.data_sets import data_set
from tests.unit.telemetry.inventory import NOW, SCOPE, FakeNames

NODE_LABELS = ["Hostname", "node", "host.name", "instance"]
UUIDS = {"GPU-one": ("n1", 1), "GPU-three": ("n3", 3)}


@pytest.fixture(autouse=True)
def known_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "gpus_by_uuid", lambda: UUIDS)


def make_readings() -> Readings:
    return Readings(Places(SCOPE, FakeNames(), NODE_LABELS), TimeLimits(NOW, 30, 3600))


def make_series(metric: str, *samples: tuple[float, float], **labels: str) -> Series:
    named = {"__name__": metric, **{n.replace("__", "."): v for n, v in labels.items()}}
    return Series(named, told_by(metric, named), samples or [(NOW, 1.0)])


def rows_of(*series: Series) -> Rows:
    readings = make_readings()
    for each in series:
        readings.add(each)
    assert not readings.refusals.told
    return readings.rows()


def refusal_of(series: Series) -> tuple[str, str]:
    readings = make_readings()
    readings.add(series)
    assert readings.rows() == {}
    (told,) = readings.refusals.told
    return told.code, told.message


def test_series_of_one_gpu_at_one_time_form_one_row() -> None:
    rows = rows_of(
        make_series("DCGM_FI_DEV_POWER_USAGE", (NOW, 412.5), (NOW - 1, 400.0), gpu="1", node="n1"),
        make_series("DCGM_FI_DEV_FB_USED", (NOW, 10.0), gpu="1", node="n1"),
        make_series("DCGM_FI_DEV_POWER_USAGE", (NOW, 99.0), gpu="1", node="n2"),
    )
    assert rows == {
        (Place("n1", 1), NOW): {"power_w": 412.5, "mem_used": 10 * 2**20},
        (Place("n1", 1), NOW - 1): {"power_w": 400.0},
        (Place("n2", 1), NOW): {"power_w": 99.0},
    }


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        ({"Hostname": "n1", "gpu": "2"}, Place("n1", 2)),
        ({"Hostname": "pod-7", "node": "n2", "gpu": "2"}, Place("n2", 2)),
        ({"Hostname": "n1", "node": "n2", "gpu": "2"}, Place("n1", 2)),
        ({"instance": "n1:9400", "gpu": "0"}, Place("n1", 0)),
        ({"instance": "n1.hall.example.com:9400", "gpu": "0"}, Place("n1", 0)),
        ({"Hostname": "n1.hall.example.com", "gpu": "0"}, Place("n1", 0)),
        ({"Hostname": "n1", "UUID": "GPU-one"}, Place("n1", 1)),
        ({"instance": "10.0.0.1:9400", "UUID": "GPU-one"}, Place("n1", 1)),
        ({"UUID": "GPU-one", "gpu": "0"}, Place("n1", 0)),
    ],
)
def test_labels_say_which_gpu_it_is(labels: dict[str, str], place: Place) -> None:
    assert list(rows_of(make_series("DCGM_FI_DEV_GPU_TEMP", **labels))) == [(place, NOW)]


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        ({"gpu": "0"}, "no_node_label"),
        ({"Hostname": "n9", "gpu": "0"}, "unknown_node"),
        ({"Hostname": "n1", "gpu": "7"}, "unknown_gpu"),
        ({"Hostname": "n1"}, "no_gpu_label"),
        ({"Hostname": "n1", "gpu": "-1"}, "no_gpu_label"),
        ({"Hostname": "n1", "gpu": "٣"}, "no_gpu_label"),
        ({"Hostname": "n1", "UUID": "GPU-three"}, "no_gpu_label"),
        ({"Hostname": "n3", "gpu": "0"}, "foreign_node"),
        ({"UUID": "GPU-three"}, "foreign_node"),
    ],
)
def test_labels_that_lead_to_no_gpu_of_ours_are_refused(labels: dict[str, str], code: str) -> None:
    assert refusal_of(make_series("DCGM_FI_DEV_GPU_TEMP", **labels))[0] == code


def test_what_tells_nothing_that_is_kept_is_ignored() -> None:
    readings = make_readings()
    readings.add(make_series("go_goroutines", (NOW, 1.0), (NOW, 2.0), Hostname="n9"))
    assert (readings.rows(), readings.ignored["unmapped"], readings.refusals.told) == ({}, 2, [])


@pytest.mark.parametrize(("value", "reason"), [(math.nan, "nan"), (2.0**47, "blank")])
def test_what_is_no_value_is_ignored(value: float, reason: str) -> None:
    readings = make_readings()
    readings.add(make_series("DCGM_FI_DEV_GPU_TEMP", (NOW, value), Hostname="n1", gpu="0"))
    assert (readings.rows(), readings.ignored[reason], readings.refusals.told) == ({}, 1, [])


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("DCGM_FI_DEV_POWER_USAGE", -1.0),
        ("DCGM_FI_DEV_POWER_USAGE", math.inf),
        ("DCGM_FI_DEV_XID_ERRORS", -math.inf),
        ("DCGM_FI_DEV_XID_ERRORS", 1e9),
        ("DCGM_FI_DEV_GPU_UTIL", 101.0),
    ],
)
def test_a_wrong_value_is_refused_by_itself(metric: str, value: float) -> None:
    readings = make_readings()
    readings.add(make_series(metric, (NOW, value), (NOW - 1, 50.0), Hostname="n1", gpu="0"))
    assert [ts for _, ts in readings.rows()] == [NOW - 1]
    assert readings.refusals.rows == {"invalid_field": 1}
    assert metric in readings.refusals.told[0].message


@pytest.mark.parametrize(
    ("ts", "code"),
    [
        (NOW + 31, "future_time"),
        (NOW - 3601, "too_old"),
        (-1.0, "invalid_field"),
        (9.2e15, "invalid_field"),
    ],
)
def test_a_wrong_time_is_refused_by_itself(ts: float, code: str) -> None:
    readings = make_readings()
    series = make_series("DCGM_FI_DEV_GPU_TEMP", (ts, 50.0), (NOW, 51.0), Hostname="n1", gpu="0")
    readings.add(series)
    assert list(readings.rows().values()) == [{"temp_c": 51.0}]
    assert readings.refusals.rows == {code: 1}


@pytest.mark.parametrize(
    ("metric", "labels", "row"),
    [
        ("hw.power", {"hw__type": "gpu", "hw__id": "1"}, {"power_w": 0.5}),
        ("hw.energy", {"hw__type": "gpu", "hw__id": "1"}, {"energy_j": 0.5}),
        ("hw.gpu.utilization", {"hw__id": "GPU-one"}, {"util": 50.0}),
        ("hw.gpu.utilization", {"hw__id": "1", "hw__gpu__task": "general"}, {"util": 50.0}),
        ("hw.gpu.memory.usage", {"hw__id": "1"}, {"mem_used": 0}),
        ("hw.errors", {"hw__type": "gpu", "hw__id": "1", "error__type": "uncorrected"},
         {"ecc": 0}),
        ("hw.temperature", {"hw__type": "gpu", "hw__id": "1"}, {"temp_c": 0.5}),
        ("hw.temperature", {"hw__type": "temperature", "hw__id": "t", "hw__parent": "GPU-one"},
         {"temp_c": 0.5}),
        ("hw.temperature", {"hw__type": "temperature", "hw__id": "t", "hw__parent": "GPU-one",
                            "hw__sensor_location": "HBM"}, {"temp_mem_c": 0.5}),
        ("hw.fan.speed_ratio", {"hw__type": "fan", "hw__id": "f", "hw__parent": "GPU-one"},
         {"fan": 50.0}),
    ],
)  # fmt: skip
def test_opentelemetrys_names_for_hardware_are_known(
    metric: str, labels: dict[str, str], row: dict[str, float]
) -> None:
    rows = rows_of(make_series(metric, (NOW, 0.5), host__name="n1", **labels))
    assert rows == {(Place("n1", 1), NOW): row}


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("hw.power", {"hw__type": "cpu", "hw__id": "1"}),
        ("hw.power", {"hw__id": "1"}),
        ("hw.gpu.utilization", {"hw__id": "1", "hw__gpu__task": "encoder"}),
        ("hw.errors", {"hw__type": "gpu", "hw__id": "1", "error__type": "corrected"}),
        ("hw.temperature", {"hw__type": "temperature", "hw__id": "t", "hw__parent": "disk-1"}),
        ("hw.gpu.io", {"hw__id": "1"}),
    ],
)
def test_what_is_of_no_gpu_is_ignored(metric: str, labels: dict[str, str]) -> None:
    assert rows_of(make_series(metric, (NOW, 0.5), host__name="n1", **labels)) == {}


def test_a_real_exposition_becomes_rows_of_its_gpus() -> None:
    text = (data_set("dcgm-exporter-text") / "h100x8_four_metrics.prom").read_text()
    series = [
        make_series(sample.name, (NOW, sample.value), **{**sample.labels, "Hostname": "n1"})
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if int(sample.labels["gpu"]) < 4
    ]
    rows = rows_of(*series)
    assert {place.gpu for place, _ in rows} == {0, 1, 2, 3}
    assert rows[Place("n1", 0), NOW] == {
        "temp_c": 30.0,
        "power_w": 113.611,
        "util": 0.0,
        "mem_util": 0.0,
        "job": "vllm-agg-0-vllmdecodeworker-s65j5",
    }


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS", "hw.power", "x"]),
            st.floats(),
            st.floats(),
            st.dictionaries(
                st.sampled_from([*NODE_LABELS, "gpu", "UUID", "GPU_I_ID", "hw.id", "hw.type"]),
                st.sampled_from(["n1", "n3", "0", "9", "", "gpu", "GPU-one", ":1", "a.b:2"]),
            ),
        ),
        max_size=5,
    )
)
def test_whatever_a_series_says_its_neighbor_is_taken(
    found: list[tuple[str, float, float, dict[str, str]]],
) -> None:
    readings = make_readings()
    for metric, ts, value, labels in found:
        readings.add(make_series(metric, (ts, value), **labels))
    readings.add(make_series("DCGM_FI_DEV_FB_USED", (NOW, 1.0), Hostname="n2", gpu="3"))
    assert readings.rows()[Place("n2", 3), NOW] == {"mem_used": 2**20}
    outcomes = readings.taken + readings.ignored.total() + readings.refusals.rows.total()
    assert outcomes == len(found) + 1
