"""Limits of GPUs, by NVML: on a machine whose GPUs are a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.matrix.result import MatrixResult, Verdict, loads
from tests.integration.lab.matrix.conftest import TOY, cell, scenario
from tests.standin.nvml import StandIn
from tests.unit.headroom.waiting import wait_for

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def machine(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, gpus=2)


@pytest.fixture
def start(
    request: pytest.FixtureRequest, journals: Path, machine: StandIn, tmp_path: Path
) -> Start:
    """Return a function that starts a matrix of the toy, by the real command line."""

    def started(*faults: str) -> subprocess.Popen[bytes]:
        process = matrix_of(tmp_path, machine, *faults)
        request.addfinalizer(process.wait)
        request.addfinalizer(process.kill)
        return process

    return started


def matrix_of(folder: Path, machine: StandIn, *faults: str) -> subprocess.Popen[bytes]:
    names = [f"gpu-{number}" for number in range(len(faults))]
    for name, fault in zip(names, faults, strict=True):
        (folder / f"{name}.yaml").write_text(scenario(name, fault))
    options = [word for name in names for word in ("--scenario", f"{name}.yaml")]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "headroom", "matrix", "run", *options, "--repeat", "1"),
            *("--", sys.executable, str(TOY)),
        ],
        cwd=folder,
        # Long enough for whoever looks at the GPUs meanwhile, on a busy machine, too.
        env=os.environ | machine.environment | {"TOY_STEPS": "200", "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_a_limit_holds_for_its_time(start: Start, machine: StandIn, tmp_path: Path) -> None:
    machine.record_calls()
    process = start(
        "{kind: power_limit, at: 0s, limit_w: 400}",
        "{kind: clock_limit, at: 0s, share: 0.5}",
    )
    assert process.wait(60) == 0
    result: MatrixResult = loads((tmp_path / "matrix/result.json").read_bytes())
    assert [each.verdict for each in result.cells] == [Verdict.PASSED] * 3
    assert cell(result, "gpu-0").spans[0].said == "limit_w 400.0"
    assert machine.calls("set_power")[:2] == ["0 400000", "1 400000"]
    assert machine.calls("set_clocks")
    assert machine.limit_w() != 400
    assert machine.locked_mhz() is None


def test_a_limit_ends_with_a_killed_harness(start: Start, machine: StandIn, journals: Path) -> None:
    process = start("{kind: power_limit, at: 0s, limit_w: 400}")
    wait_for(lambda: machine.limit_w(1) == 400, 60)
    process.kill()
    process.wait()
    wait_for(lambda: not list(journals.iterdir()), 30)
    assert machine.limit_w() != 400
    assert machine.limit_w(1) != 400


@pytest.mark.slow
def test_what_may_not_be_set_is_not_run(start: Start, machine: StandIn, tmp_path: Path) -> None:
    machine.gpu(may_set=0)
    process = start("{kind: power_limit, at: 0s, limit_w: 400}")
    assert process.wait(60) == 3
    result = loads((tmp_path / "matrix/result.json").read_bytes())
    assert cell(result, "gpu-0").verdict == Verdict.NOT_RUN
    assert "it takes root" in cell(result, "gpu-0").why
