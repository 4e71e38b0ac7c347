"""The twin beside real machines: readings of the same hardware in the same state."""

import csv
import gzip
import statistics

import numpy as np
import pytest

from physics.power import gpu_power_w, throughput_under_cap
from physics.thermal import steady_state_c
from sim.fleet import make_fleet
from sim.hardware import A100, H100, HGX_H100
from sim.state import MEMORY_C_PER_W, MEMORY_OFFSET_C, Twin
from tests.data_sets import data_set


def h100_capture(state: str) -> dict[str, float]:
    """Return the numbers of one nvidia-smi query of an H100, by field."""
    name = f"linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.{state}.query-gpu.csv"
    with (data_set("nvidia-smi-captures") / name).open() as file:
        header, values = (next(csv.reader([line], skipinitialspace=True)) for line in file)
    found = {}
    for field, value in zip(header, values, strict=True):
        number = value.split(" ")[0]
        if number.replace(".", "", 1).isdigit():
            found[field.split(" [")[0].strip()] = float(number)
    return found


def test_an_h100_at_full_clock_is_as_in_the_capture() -> None:
    real = h100_capture("load")
    power_w = gpu_power_w(
        static_w=H100.static_w, dynamic_w=0.92 * H100.dynamic_w, relative_throughput=1.0
    )
    assert power_w == pytest.approx(real["power.draw"], rel=0.03)
    core_c = steady_state_c(
        power_w=power_w, ambient_c=25.0, resistance_c_per_w=H100.resistance_c_per_w
    )
    assert core_c == pytest.approx(real["temperature.gpu"], abs=3.0)
    memory_c = 25.0 + MEMORY_OFFSET_C + MEMORY_C_PER_W * power_w
    assert memory_c == pytest.approx(real["temperature.memory"], abs=4.0)
    assert H100.sm_max_mhz == real["clocks.current.sm"]
    assert H100.mem_mhz == real["clocks.current.memory"]
    assert H100.rated_w == real["power.limit"]


def test_an_idle_h100_is_as_in_the_capture() -> None:
    real = h100_capture("idle")
    assert H100.idle_w == pytest.approx(real["power.draw"], rel=0.05)
    assert H100.sm_idle_mhz == real["clocks.current.sm"]
    # nvidia-smi gives the limit as what is left to it.
    assert H100.slowdown_c == real["temperature.gpu"] + real["temperature.gpu.tlimit"]


def test_an_idle_a100_draws_what_the_fast_recording_shows() -> None:
    path = data_set("gpu-power-fast") / "Transient_Response_A100_TR.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = list(csv.reader(file, skipinitialspace=True))[1:]
    idle_w = [float(row[5]) for row in rows if row[1] == "0" and float(row[5]) < 70.0]
    assert A100.idle_w == pytest.approx(statistics.median(idle_w), rel=0.1)


def test_under_caps_speed_falls_as_slowly_as_in_the_zeus_measurements() -> None:
    """A V100 at two thirds of its power keeps 85 % of its speed; our law, scaled, says the same."""
    runs: dict[tuple[str, ...], dict[float, tuple[float, float]]] = {}
    with (data_set("zeus-power-limits") / "summary_power_v100.csv").open() as file:
        for row in csv.DictReader(file):
            key = (row["dataset"], row["network"], row["batch_size"], row["optimizer"])
            reading = float(row["time_per_epoch"]), float(row["average_power"])
            runs.setdefault(key, {})[float(row["power_limit"])] = reading
    # Only loads that the caps hold back.
    held = [run for run in runs.values() if 250.0 in run and run[250.0][1] > 200.0]
    full_w = statistics.median(run[250.0][1] for run in held)
    static_w = full_w * H100.static_w / (H100.static_w + H100.dynamic_w)
    for limit_w in (150.0, 175.0, 200.0, 225.0):
        capped = [run for run in held if limit_w in run]
        speed = statistics.median(run[250.0][0] / run[limit_w][0] for run in capped)
        drawn_w = statistics.median(run[limit_w][1] for run in capped)
        law = throughput_under_cap(cap_w=drawn_w, static_w=static_w, dynamic_w=full_w - static_w)
        assert law == pytest.approx(speed, abs=0.03)


def test_a_training_node_draws_what_512_real_h100s_drew() -> None:
    """Immersed nodes (no fans) in the recording, air in the twin: ours draw somewhat more."""
    path = data_set("mlperf-train-h100-node-power") / "power_64node_gpt3.csv.gz"
    with gzip.open(path, "rt") as file:
        next(file)
        real_w = [float(line.rsplit(",", 1)[1]) for line in file][::50]
    twin = Twin(make_fleet(gpus=512), seed=7)
    twin.advance(1800.0)
    uncapped = [
        rack.kind.name in ("comfortable", "tight") and rack.kind.host is HGX_H100
        for rack in twin.fleet.racks
    ]
    train = np.array(
        [
            (name or "").startswith(("pretrain", "moe", "vision"))
            for name in (twin.workload.names[slot] for slot in twin.workload.job_of_node)
        ]
    )
    busy = train & np.array(uncapped)[twin.fleet.rack_of_node]
    ours_w = float(twin.node_w[busy].mean())
    assert statistics.median(real_w) < ours_w < 1.25 * statistics.median(real_w)
    assert twin.node_w.max() < HGX_H100.rated_w + 8 * H100.rated_w
