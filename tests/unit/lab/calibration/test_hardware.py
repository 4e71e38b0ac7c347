"""What the hardware says of itself, beside the twin's models of it."""

from __future__ import annotations

import pytest

from lab.calibration import sources
from lab.hardware import H100, H200, GpuModel
from lab.twin.state import MEMORY_C_PER_W, MEMORY_OFFSET_C
from tests.data_sets import data_set

CAPTURED = {"h100-80gb-hbm3": H100, "h200": H200}


def of(name: str, state: str) -> dict[str, float]:
    return sources.capture(data_set(sources.CAPTURES).parent, name, state)


@pytest.mark.parametrize(("name", "gpu"), CAPTURED.items())
def test_clocks_limits_and_memory_are_as_in_the_captures(name: str, gpu: GpuModel) -> None:
    idle, load = of(name, "idle"), of(name, "load")
    assert gpu.sm_idle_mhz == idle["clocks.current.sm"]
    assert gpu.sm_max_mhz == load["clocks.current.sm"]
    assert gpu.mem_mhz == load["clocks.current.memory"]
    assert gpu.rated_w == load["power.limit"]
    # nvidia-smi gives the limit as what is left to it.
    assert gpu.slowdown_c == idle["temperature.gpu"] + idle["temperature.gpu.tlimit"]
    # What the driver keeps for itself is not in the H100's.
    assert gpu.mem_bytes / 2**20 == pytest.approx(load["memory.total"], rel=1e-3)


def test_the_memory_of_a_loaded_h100_is_as_warm_as_in_the_capture() -> None:
    load = of("h100-80gb-hbm3", "load")
    memory_c = 25.0 + MEMORY_OFFSET_C + MEMORY_C_PER_W * load["power.draw"]
    assert memory_c == pytest.approx(load["temperature.memory"], abs=4.0)
