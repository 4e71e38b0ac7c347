"""What DCGM's metrics mean, on real expositions of dcgm-exporter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headroom import dcgm
from headroom.agent.devices import ColumnBuffer
from headroom.contracts import GpuColumns
from tests.data_sets import data_set

Series = tuple[str, Mapping[str, str], float]
GPU0 = {"gpu": "0", "UUID": "GPU-1", "Hostname": "n1"}


def exposition(name: str) -> Iterator[Series]:
    text = (data_set("dcgm-exporter-text") / f"{name}.prom").read_text()
    # Without TYPE lines, so that the parser leaves the names alone.
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for family in text_string_to_metric_families(bare + "\n"):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def one(*series: Series) -> dcgm.GpuReading:
    (reading,) = dcgm.gather(series)
    return reading


def value_of(metric: str, value: float) -> dict[str, float]:
    return one((metric, GPU0, value)).values


def test_a_real_exposition_in_the_contracts_units() -> None:
    reading = one(*exposition("l40s_idle_full"))
    assert (reading.host, reading.gpu) == ("gpu1-wl8sg", 0)
    assert reading.uuid == "GPU-5b4e07f6-3a86-4340-039d-25f2a83cdc43"
    assert reading.values == {
        "sm_mhz": 210,
        "mem_mhz": 405,
        "temp_c": 32,  # and no temp_mem_c: 0 °C is how DCGM says that there is none
        "power_w": 35.686,
        "energy_j": pytest.approx(5_551_899.58),
        "util": 0,
        "mem_util": 0,
        "mem_bw_util": 0.0131,
        "mem_used": 0,
        "pcie_tx": 175_084,
        "pcie_rx": 19_831,
    }


def test_eight_gpus_and_the_pod_that_has_one_of_them() -> None:
    readings = dcgm.gather(exposition("h100x8_four_metrics"))
    assert [reading.gpu for reading in readings] == list(range(8))
    assert {reading.host for reading in readings} == {"gpu-node-1"}
    assert [reading.job for reading in readings] == [
        "vllm-agg-0-vllmdecodeworker-s65j5",
        *[None] * 7,
    ]
    assert readings[0].values["power_w"] == 113.611


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        ("DCGM_FI_DEV_FB_USED", 3, {"mem_used": 3 * 1024 * 1024}),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5000, {"energy_j": 5}),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.25, {"util": 25}),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", 12, {"mem_util": 12}),
        ("DCGM_FI_PROF_DRAM_ACTIVE", 0.25, {"mem_bw_util": 25}),
        ("DCGM_FI_PROF_DRAM_UTIL_RATIO", 0.25, {"mem_bw_util": 25}),
        ("DCGM_FI_DEV_POWER_VIOLATION", 7e9, {"throttle_sw_power_cap_ns": 7_000_000_000}),
        ("DCGM_FI_DEV_MEMORY_TEMP", 0, {}),
        ("DCGM_FI_DEV_MEMORY_TEMP", 60, {"temp_mem_c": 60}),
        ("DCGM_FI_DEV_FAN_SPEED", 104, {"fan": 100}),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 4.0, {"throttle": 4}),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2.0, {"ecc": 2}),
    ],
)
def test_units_are_those_of_the_contract(
    metric: str, value: float, expected: dict[str, float]
) -> None:
    assert value_of(metric, value) == expected


@pytest.mark.parametrize(
    "names",
    [
        ("DCGM_FI_DEV_POWER_USAGE", "dcgm_power_usage", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        ("DCGM_FI_DEV_GPU_TEMP", "dcgm_gpu_temp", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
        ("DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_utilization", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
        ("DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors", "DCGM_FI_DEV_XID_ERROR"),
    ],
)
def test_a_field_is_known_by_its_old_and_its_new_names(names: tuple[str, ...]) -> None:
    assert len({dcgm.field_of(name) for name in names}) == 1
    assert [value_of(name, 64) for name in names] == [value_of(names[0], 64)] * len(names)


def test_every_name_and_number_is_of_one_field_and_every_column_of_the_contract() -> None:
    names = [name for each in dcgm.FIELDS for name in each.names]
    assert len(names) == len(set(names))
    assert len({each.id for each in dcgm.FIELDS}) == len(dcgm.FIELDS)
    assert {each.column for each in dcgm.FIELDS} <= set(GpuColumns.__struct_fields__)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2.0**47, 2**63 - 16, 2.0**63])
def test_what_dcgm_leaves_blank_is_missing(value: float) -> None:
    assert value_of("DCGM_FI_DEV_POWER_USAGE", value) == {}


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_that_tell_the_same_the_better_counts_in_either_order(turned: bool) -> None:
    series: list[Series] = [
        ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", GPU0, 500),
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", GPU0, 700),
    ]
    assert one(*(reversed(series) if turned else series)).values == {"power_limit_w": 500}


def test_a_better_one_that_is_blank_leaves_the_field_to_the_other() -> None:
    reading = one(
        ("DCGM_FI_DEV_GPU_UTIL", GPU0, math.nan), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", GPU0, 0.5)
    )
    assert reading.values == {"util": 50}


def test_instances_of_a_split_gpu_add_up_in_memory_and_share_the_rest() -> None:
    halves = [GPU0 | {"GPU_I_ID": number, "GPU_I_PROFILE": "3g.40gb"} for number in ("1", "2")]
    reading = one(
        *(("DCGM_FI_DEV_FB_USED", labels, 100) for labels in halves),
        *(("DCGM_FI_DEV_POWER_USAGE", labels, 300) for labels in halves),
        *(("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, 0.9) for labels in halves),
    )
    assert reading.values == {
        "mem_used": 200 * 1024 * 1024,
        "power_w": 300,
        "mig_instances": 2,
    }


@pytest.mark.parametrize(
    ("labels", "host"), [({"Hostname": "a"}, "a"), ({"hostname": "b"}, "b"), ({}, "")]
)
def test_the_host_is_a_label_of_either_spelling(labels: dict[str, str], host: str) -> None:
    assert dcgm.host_of(labels) == host


@pytest.mark.parametrize(
    ("labels", "job"), [({"hpc_job": "17", "pod": "p"}, "17"), ({"pod": "p"}, "p"), ({}, None)]
)
def test_a_batch_job_comes_before_a_pod(labels: dict[str, str], job: str | None) -> None:
    assert dcgm.job_of(labels) == job


def test_what_is_of_no_gpu_is_passed_over() -> None:
    assert not dcgm.gather(
        [
            ("node_load1", GPU0, 1),
            ("DCGM_FI_DEV_POWER_USAGE", {"nvswitch": "0"}, 1),
            ("DCGM_FI_DEV_POWER_USAGE", {"gpu": "x"}, 1),
        ]
    )


def test_the_values_of_a_real_exposition_fit_the_contract() -> None:
    buffer = ColumnBuffer(GpuColumns)
    for name in ("l4_idle_full", "l40s_idle_full", "h100x8_four_metrics"):
        for reading in dcgm.gather(exposition(name)):
            buffer.append(1.0, {"gpu": reading.gpu, **reading.values})
    block = buffer.take()
    assert block is not None
    assert (len(block), buffer.rejected) == (10, 0)
