"""What the agent said of a real card, beside nvidia-smi in the same minutes (tests/data/h200)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from headroom.agent.nvml.energy import EnergyLog

Array = NDArray[np.float64]
RECORDING = Path(__file__).parents[2] / "data" / "h200"


def read(name: str) -> dict[str, Array]:
    table = pl.read_csv(RECORDING / name, infer_schema_length=None)
    texts = [c for c, kind in table.schema.items() if kind == pl.String]
    return {c: table[c].to_numpy().astype(float) for c in table.columns if c not in texts}


@pytest.fixture(scope="module")
def smi() -> dict[str, Array]:
    return read("nvidia-smi.csv.gz")


@pytest.fixture(scope="module")
def agent() -> dict[str, Array]:
    return read("agent.csv.gz")


def integral_j(t_s: Array, power_w: Array, begin_s: float, end_s: float) -> float:
    inside = (t_s > begin_s) & (t_s < end_s)
    at = np.concatenate([[begin_s], t_s[inside], [end_s]])
    return float(np.trapezoid(np.interp(at, t_s, power_w), at))


def log_of(series: dict[str, Array], every: int) -> tuple[Array, Array]:
    """Return times and mean power as the agent finds them, from every n-th reading."""
    log = EnergyLog(most_w=1500.0)
    points = list(zip(series["t_s"][::every], series["energy_j"][::every], strict=True))
    found = [(t, log.add(t, round(1e3 * joules))) for t, joules in points]
    known = [(t, power) for t, power in found if power is not None]
    assert len(found) - len(known) == 1  # the first reading has nothing before it
    times, power = zip(*known, strict=True)
    return np.array(times), np.array(power)


def test_power_from_the_energy_counter_is_that_of_nvidia_smi(smi: dict[str, Array]) -> None:
    times, power_w = log_of(read("series.csv.gz"), every=10)
    settled = (times > 40) & (times < 150)
    said_w = np.interp(times[settled], smi["t_s"], smi["power_average_w"])
    assert np.abs(power_w[settled] - said_w).max() < 0.02 * 700
    own_j = float(np.sum(power_w[1:] * np.diff(times)))
    smi_j = integral_j(smi["t_s"], smi["power_average_w"], times[0], times[-1])
    assert own_j == pytest.approx(smi_j, rel=2e-3)


def test_samples_of_instant_power_miss_what_the_counter_has() -> None:
    series = read("series.csv.gz")
    sampled_j = np.trapezoid(series["power_instant_w"], series["t_s"])
    counted_j = series["energy_j"][-1] - series["energy_j"][0]
    assert sampled_j < 0.985 * counted_j


def test_the_agent_and_nvidia_smi_agree_on_energy_temperature_and_lost_time(
    agent: dict[str, Array], smi: dict[str, Array]
) -> None:
    begin_s, end_s = agent["t_s"][0], agent["t_s"][-1]
    smi_j = integral_j(smi["t_s"], smi["power_average_w"], begin_s, end_s)
    assert agent["energy_j"][-1] - agent["energy_j"][0] == pytest.approx(smi_j, rel=1e-3)
    for name in ("temp_c", "temp_mem_c"):
        off_c = np.abs(agent[name] - np.interp(agent["t_s"], smi["t_s"], smi[name]))
        assert np.median(off_c) < 0.5, name
    capped_s = (agent["throttle_sw_power_cap_ns"][-1] - agent["throttle_sw_power_cap_ns"][0]) / 1e9
    said_s = (smi["sw_power_cap_us"][-1] - smi["sw_power_cap_us"][0]) / 1e6
    assert capped_s == pytest.approx(said_s, abs=2.0)
    assert capped_s > 250
