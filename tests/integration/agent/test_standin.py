"""The stand-in itself: what tests rely on without looking."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.standin.nvml import StandIn


def in_another_process(machine: StandIn, statement: str) -> None:
    script = f"from pynvml import *; nvmlInit(); gpu = nvmlDeviceGetHandleByIndex(0); {statement}"
    environment = {**os.environ, **machine.environment}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


def test_a_gpu_says_who_it_is(machine: StandIn, nvml: Any) -> None:
    machine.gpu(1, name="NVIDIA H200", uuid="GPU-abc", pci="00000002:0A:00.0")
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert nvml.nvmlDeviceGetName(gpu) == "NVIDIA H200"
    assert nvml.nvmlDeviceGetUUID(gpu) == "GPU-abc"
    assert nvml.nvmlDeviceGetVbiosVersion(gpu) == "96.00.D9.00.01"
    pci = nvml.nvmlDeviceGetPciInfo(gpu)
    assert (pci.domain, pci.bus, pci.device, pci.busId) == (2, 10, 0, "00000002:0A:00.0")
    nvml.nvmlShutdown()


def test_what_one_process_sets_another_one_reads(machine: StandIn, nvml: Any) -> None:
    machine.gpu(power_mw=650_000)
    in_another_process(machine, "nvmlDeviceSetPowerManagementLimit(gpu, 300000)")
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 300_000
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) == 700_000
    assert nvml.nvmlDeviceGetPowerUsage(gpu) == 300_000
    machine.reload_driver()
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 700_000
    nvml.nvmlShutdown()


def test_energy_is_the_power_over_time_through_every_change(machine: StandIn, nvml: Any) -> None:
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    expected_j = 0.0
    before_mj, began = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu), time.monotonic()
    for watts in (350, 100, 600):
        machine.gpu(power_mw=watts * 1000)
        nvml.nvmlDeviceGetPowerUsage(gpu)
        time.sleep(0.1)
        ended = time.monotonic()
        expected_j += watts * (ended - began)
        began = ended
    grown_j = (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - before_mj) / 1e3
    assert grown_j == pytest.approx(expected_j, rel=0.05)
    nvml.nvmlShutdown()


def test_a_process_that_is_to_die_dies(machine: StandIn) -> None:
    machine.gpu(kill="nvmlDeviceSetPowerManagementLimit:after")
    with pytest.raises(subprocess.CalledProcessError, match="SIGKILL"):
        in_another_process(machine, "nvmlDeviceSetPowerManagementLimit(gpu, 300000)")
    assert machine.limit_w() == 300
