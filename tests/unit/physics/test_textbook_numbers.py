"""The numbers of the textbook: what it derives, by calls; what it states, in the catalogue.

No arithmetic here: an answer's inputs are those of its row, and its unit is changed to that of
the row.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from typing import Any

import pytest

from physics import checkpoint, comm, goodput, power, reliability, roofline, scaling
from physics.hardware import TEXTBOOK
from tests.data_sets import REPOSITORY

NUMBERS = REPOSITORY / "tests" / "data" / "textbook" / "numbers.csv"


@functools.cache
def textbook_numbers() -> dict[str, dict[str, str]]:
    """Return the rows of the textbook's numbers by their id."""
    with NUMBERS.open(newline="", encoding="utf-8") as lines:
        return {row["id"]: row for row in csv.DictReader(lines)}


class Inputs:
    """The inputs of one row by name. Knows which of them nobody has asked for."""

    def __init__(self, text: str) -> None:
        pairs = (each.split("=") for each in text.split(";"))
        self._values = {name: float(value) for name, value in pairs}
        self.unused = set(self._values)

    def __getitem__(self, name: str) -> float:
        self.unused.discard(name)
        return self._values[name]


Answer = Callable[[Inputs], Any]


def fleet_mtbf(row: Inputs) -> Any:
    return reliability.system_mtbf_s(component_mtbf_s=row["m"], components=row["n"])


def fleet_failure_probability(row: Inputs) -> Any:
    forecast = reliability.failure_forecast(
        window_s=row["t"], component_mtbf_s=row["m"], components=row["n"]
    )
    return forecast.probability


def budgeted_goodput(row: Inputs) -> Any:
    budget = goodput.budgeted_goodput(
        pipeline_bubble_share=row["a"],
        checkpoint_share=row["b"],
        recovery_share=row["c"],
        maintenance_share=row["d"],
    )
    return budget.additive


def bundle_total(row: Inputs) -> Any:
    return comm.links_bytes_per_s(links=row["l"], link_total_bytes_per_s=row["b"], directions=2)


def line_rate(row: Inputs) -> Any:
    return comm.line_rate_bytes_per_s(line_rate_bits_per_s=row["r"])


def ring_all_reduce(row: Inputs) -> Any:
    return comm.ring_all_reduce_s(
        ranks=row["n"], message_bytes=row["M"], link_bytes_per_s=row["b"], latency_s=row["a"]
    )


def ratio_of_ring(row: Inputs) -> Any:
    return comm.communication_ratio(
        communication_s=row["t"], compute_s=row["c"], model="ring"
    ).ratio


def activation_transfer(row: Inputs) -> Any:
    return comm.transfer_s(message_bytes=row["M"], link_bytes_per_s=row["b"], latency_s=0.0)


def ratio_of_activation(row: Inputs) -> Any:
    return comm.communication_ratio(
        communication_s=activation_transfer(row), compute_s=row["c"], model="point-to-point"
    ).ratio


def checkpoint_write(row: Inputs) -> Any:
    size = checkpoint.size_bytes(parameters=row["P"])
    return checkpoint.write_s(checkpoint_bytes=size, bandwidth_bytes_per_s=row["bw"])


def adam_state(row: Inputs) -> Any:
    return checkpoint.state_bytes_per_parameter(
        weights_bytes_per_parameter=row["w"],
        master_bytes_per_parameter=row["ma"],
        first_moment_bytes_per_parameter=row["mm"],
        second_moment_bytes_per_parameter=row["v"],
    )


def weights_and_optimizer(row: Inputs) -> Any:
    return checkpoint.state_bytes_per_parameter(
        weights_bytes_per_parameter=row["a"], optimizer_bytes_per_parameter=row["b"]
    )


def effective_rate(row: Inputs) -> Any:
    return scaling.effective_rate_flops(
        gpus=row["n"],
        peak_flops=row["r"],
        mfu=row["a"],
        efficiency=row["b"],
        goodput=row["c"],
    )


def efficiency_of_two_runs(row: Inputs) -> Any:
    return scaling.measured_efficiency(
        throughput_ratio=row["r"],
        reference_gpus=row["a"],
        gpus=row["b"],
        reference_efficiency=row["e"],
    ).absolute


def facility_of_gpus(row: Inputs) -> Any:
    it_w = power.it_load_w(gpus=row["n"], tdp_w=row["t"])
    return power.facility_load_w(it_w=it_w, pue=row["u"])


#: Ids of rows of kind "derived" → the call that reproduces them.
BY_CALL: dict[str, Answer] = {
    "P12-01 T2-01 INV-01 SM-01": lambda row: comm.bandwidth_ratio(
        fast_bytes_per_s=row["nv"], slow_bytes_per_s=row["ib"]
    ),
    "P12-02 T2-08 T2-09 INV-02 T6-1a T6-1b T6-2a T6-2b T6-3a T6-3b T6-4a T6-4b T6-5 SM-02": (
        fleet_mtbf
    ),
    "T6-1c T6-2c T6-3c T6-4c SM-03": fleet_failure_probability,
    "T6-6": lambda row: reliability.failure_probability(window_s=row["t"], system_mtbf_s=row["m"]),
    "T6-00": lambda row: reliability.mtbf_years(mtbf_h=row["h"]),
    "P12-03 P14-03 SM-07": lambda row: scaling.useful_share(
        mfu=row["a"], efficiency=row["b"], goodput=row["c"]
    ),
    "P14-04": lambda row: scaling.lost_share(mfu=row["a"], efficiency=row["b"], goodput=row["c"]),
    "T5-05": lambda row: scaling.lost_share(efficiency=row["e"]),
    "P14-01": lambda row: scaling.total_peak_flops(gpus=row["n"], peak_flops=row["r"]),
    "P14-02": effective_rate,
    "RL-06": efficiency_of_two_runs,
    "AM-01 AM-02 AM-03 AM-04": lambda row: scaling.amdahl_speedup(
        gpus=row["n"], serial_share=row["s"]
    ),
    "AM-05": lambda row: scaling.amdahl_limit(serial_share=row["s"]),
    "T10-16 T10-17": lambda row: scaling.gpus_total(nodes=row["a"], gpus_per_node=row["b"]),
    "T10-18": lambda row: scaling.torus_size(x=row["x"], y=row["y"], z=row["z"]),
    "T2-11 T8-05 P14-07 SM-06": budgeted_goodput,
    "FR-01": adam_state,
    "T7-00": weights_and_optimizer,
    "T2-10 T7-1a T7-2a T7-3a T7-4a": lambda row: checkpoint.size_bytes(
        parameters=row["P"], bytes_per_parameter=row["b"]
    ),
    "T7-1b T7-2b T7-3b T7-4b": checkpoint_write,
    "T2-02 T3-04 T3-05 T3-06 T3-07 T3-08": line_rate,
    "T3-01 T10-10 T10-11": bundle_total,
    "T3-02": lambda row: comm.line_rate_bytes_per_s(
        line_rate_bits_per_s=row["r"], directions=row["d"]
    ),
    "T3-03": lambda row: comm.lanes_bytes_per_s(lanes=row["l"], lane_rate_bits_per_s=row["r"]),
    "T4-05": lambda row: comm.fiber_latency_s(distance_m=row["d"], velocity_m_per_s=row["v"]),
    # The row turns a latency into another unit: an empty message takes just that.
    "T4-06": lambda row: comm.transfer_s(
        message_bytes=0.0, link_bytes_per_s=1.0, latency_s=row["t"]
    ),
    "INV-04": lambda row: comm.ring_traffic_factor(ranks=row["n"]),
    "T11-1a T11-2a": ring_all_reduce,
    "T11-1c T11-1d T11-2c": ratio_of_ring,
    "T11-3a": activation_transfer,
    "T11-3c": ratio_of_activation,
    "RL-01": lambda row: roofline.ridge_point_flop_per_byte(
        peak_flops=row["r"], memory_bytes_per_s=row["b"]
    ),
    "RL-02": lambda row: roofline.weight_bytes(parameters=row["P"]),
    "RL-03": lambda row: roofline.work_per_token_flop(parameters=row["P"]),
    "RL-04": lambda row: roofline.decode_intensity_flop_per_byte(parameters=row["P"]),
    "RL-05": lambda row: roofline.decode_tokens_per_s(
        memory_bytes_per_s=row["b"], parameters=row["P"]
    ),
    "T2-17 T9-09 T9-10 TH-01": lambda row: power.it_load_w(gpus=row["n"], tdp_w=row["t"]),
    "T9-11 TH-02": facility_of_gpus,
    "T12-05 SM-08": lambda row: power.rack_density_ratio(rack_w=row["a"], reference_w=row["b"]),
    "T13-1b T13-2b T13-3b T13-4b": lambda row: power.facility_overhead_w(
        it_w=row["q"], pue=row["u"]
    ),
    "EH-01 EH-02": lambda row: power.facility_load_w(it_w=row["q"], pue=row["u"]),
    "EH-03": lambda row: power.pue_saving_w(it_w=row["q"], pue=row["a"], better_pue=row["b"]),
}

#: Ids of rows of kind "input" → where the textbook profile holds them.
BY_ADDRESS: dict[str, str] = {
    "T2-03 T4-01": "links.InfiniBand NDR.latency_s",
    "T4-02": "links.InfiniBand HDR.latency_s",
    "T4-03": "links.RoCE v2.latency_s",
    "T4-04": "links.TCP/IP.latency_s",
    "T10-12": "links.TPU v6 ICI.total_bytes_per_s",
    "T2-04 CN-01": "references.training.mfu_low",
    "T2-05 CN-02": "references.training.mfu_high",
    "P14-05 SM-04": "references.training.mfu",
    "T5-01": "efficiency_tables.training.efficiency_32",
    "T5-02": "efficiency_tables.training.efficiency_256",
    "T2-06 T5-03 P14-06 SM-05": "efficiency_tables.training.efficiency_1024",
    "T2-07 T5-04": "efficiency_tables.training.efficiency_8192",
    "T8-01": "overhead_budgets.training.pipeline_bubble_share",
    "T8-02": "overhead_budgets.training.checkpoint_share",
    "T8-03": "overhead_budgets.training.recovery_share",
    "T8-04": "overhead_budgets.training.maintenance_share",
    "INV-03": "components.GPU.mtbf_s",
    "T9-01 T12-01": "racks.traditional.power_w",
    "T2-12 T9-02 T12-02": "racks.AI.power_w",
    "T9-03 T12-03": "racks.AI high density.power_w",
    "T2-13 T9-04 T12-04 SM-09": "cooling_kinds.air.rack_limit_w",
    "T2-14 T9-05 T13-1a": "pue_references.liquid-cooled AI.pue",
    "T9-06 T13-2a": "pue_references.best air-cooled.pue",
    "T2-15 T9-07 T13-3a": "pue_references.industry average.pue",
    "T13-4a": "pue_references.legacy enterprise.pue",
    "T2-16 T9-08": "accelerators.H100.tdp_w",
    "RL-00a": "accelerators.H100.peak_bf16_flops",
    "RL-00b": "accelerators.H100.memory_bytes_per_s",
    "T10-01": "accelerators.B200.peak_bf16_flops",
    "T10-04": "accelerators.B200.memory_bytes_per_s",
    "T10-07": "accelerators.B200.memory_bytes",
    "T10-13": "accelerators.B200.tdp_w",
    "T10-02": "accelerators.MI300X.peak_bf16_flops",
    "T10-05": "accelerators.MI300X.memory_bytes_per_s",
    "T10-08": "accelerators.MI300X.memory_bytes",
    "T10-14": "accelerators.MI300X.tdp_w",
    "T10-03": "accelerators.TPU v6.peak_bf16_flops",
    "T10-06": "accelerators.TPU v6.memory_bytes_per_s",
    "T10-09": "accelerators.TPU v6.memory_bytes",
    "T10-15": "accelerators.TPU v6.tdp_w",
    "T10-19": "clusters.largest announced.gpus",
    "T11-1b": "workloads.7B data parallel.compute_s",
    "T11-2b": "workloads.350M data parallel.compute_s",
    "T11-3b": "workloads.tensor parallel layer.compute_s",
}

#: Links whose bandwidth the textbook derives: the catalogue holds the printed figure.
DERIVED_LINKS: dict[str, str] = {
    "T3-01": "links.NVLink 4.0.total_bytes_per_s",
    "T3-02": "links.ICI v5p.total_bytes_per_s",
    "T3-03": "links.PCIe Gen5 x16.per_direction_bytes_per_s",
    "T3-04": "links.InfiniBand GXDR.per_direction_bytes_per_s",
    "T3-05": "links.InfiniBand XDR.per_direction_bytes_per_s",
    "T3-06": "links.InfiniBand NDR.per_direction_bytes_per_s",
    "T3-07": "links.InfiniBand HDR.per_direction_bytes_per_s",
    "T3-08": "links.RoCE 100 GbE.per_direction_bytes_per_s",
    "T4-06": "links.WAN.latency_s",
    "T10-10": "links.NVLink 5.0.total_bytes_per_s",
    "T10-11": "links.Infinity Fabric.total_bytes_per_s",
    "T10-16": "clusters.DGX H100 SuperPOD.gpus",
    "T10-17": "clusters.Meta 24k H100.gpus",
    "T10-18": "clusters.TPU v5p pod.gpus",
}

#: Unit of a row → what one of it is in SI.
UNITS = {
    "": 1.0,
    "%": 1e-2,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "h": 3600.0,
    "W": 1.0,
    "kW": 1e3,
    "GB": 1e9,
    "GB/s": 1e9,
    "TB/s": 1e12,
    "TFLOP/s": 1e12,
    "GPU": 1.0,
    "chip": 1.0,
}


def one_by_one(grouped: dict[str, Any]) -> list[Any]:
    pairs = [(each, found) for ids, found in grouped.items() for each in ids.split()]
    return [pytest.param(*pair, id=pair[0]) for pair in pairs]


def ids_of(grouped: dict[str, Any]) -> list[str]:
    return [each for ids in grouped for each in ids.split()]


def within(row: dict[str, str], value: float) -> bool:
    """Return whether a value, in the unit of the row, is what the textbook prints."""
    # 31.25 printed as 31.2 is exactly the tolerance away: floats are a little over it.
    allowed = float(row["tolerance_abs"]) * (1.0 + 1e-9)
    return abs(value - float(row["expected_value"])) <= allowed


@pytest.mark.parametrize(("row_id", "answer"), one_by_one(BY_CALL))
def test_what_the_textbook_derives_is_the_answer_of_a_law(row_id: str, answer: Answer) -> None:
    row = textbook_numbers()[row_id]
    inputs = Inputs(row["inputs_si"])
    value = answer(inputs) * float(row["si_to_unit"])
    assert not inputs.unused
    assert within(row, value), f"{value} {row['unit']}, printed {row['expected_value']}"


@pytest.mark.parametrize(("row_id", "address"), one_by_one(BY_ADDRESS | DERIVED_LINKS))
def test_what_the_textbook_states_stands_in_its_profile(row_id: str, address: str) -> None:
    row = textbook_numbers()[row_id]
    value = TEXTBOOK.figure(address) / UNITS[row["unit"]]
    assert within(row, value), f"{value} {row['unit']}, printed {row['expected_value']}"


@pytest.mark.parametrize(
    ("kind", "grouped", "count"), [("derived", BY_CALL, 97), ("input", BY_ADDRESS, 65)]
)
def test_no_row_is_left_out(kind: str, grouped: dict[str, Any], count: int) -> None:
    rows = {row_id for row_id, row in textbook_numbers().items() if row["kind"] == kind}
    covered = ids_of(grouped)
    assert len(rows) == count
    assert sorted(covered) == sorted(rows)
