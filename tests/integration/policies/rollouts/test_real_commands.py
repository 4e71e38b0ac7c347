"""Two versions of a real command through ``headroom matrix run``, judged as arms of a rollout."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lab.matrix.result import loads
from policies.rollouts.judging import Guard, GuardState, Judgement, Verdict, judge

pytestmark = pytest.mark.slow

_TOY = Path(__file__).parents[2] / "lab" / "matrix" / "toy.py"
_PAIRS = 8


def _steps_per_s(folder: Path, *version: str) -> float:
    """Run a version of the command without faults; return how many steps it made in a second."""
    command = (sys.executable, str(_TOY), "alone", *version)
    subprocess.run(
        (
            sys.executable, "-m", "headroom", "matrix", "run", "--only", "normal",
            "--repeat", "1", "--out", str(folder), "--", *command,
        ),
        env={**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")},
        check=False,  # one run alone is not all that the cell wants: that is no fault of the toy
        capture_output=True,
        timeout=300,
    )  # fmt: skip
    (cell,) = loads((folder / "result.json").read_bytes()).cells
    found = next(each.value for each in cell.measures if each.name == "steps_per_s")
    assert found is not None
    return found


def _judged(folder: Path, *changed: str) -> Judgement:
    """Run both versions in turn, so that whatever else the machine does comes to both."""
    blocks = []
    for pair in range(_PAIRS):
        before = _steps_per_s(folder / f"{pair}-old")
        after = _steps_per_s(folder / f"{pair}-new", *changed)
        blocks.append(math.log(before / after))
    return judge(
        [Guard("step_time", 0.05)], {"step_time": np.array(blocks)}, {},
        alpha=0.05, beta=0.05, steps=1, soaked=True, is_over=True,
    )  # fmt: skip


def test_a_version_that_takes_longer_for_its_steps_is_rolled_back(tmp_path: Path) -> None:
    found = _judged(tmp_path, "plodding")
    assert found.verdict is Verdict.ROLL_BACK
    (finding,) = found.findings
    assert finding.state is GuardState.WORSE
    assert finding.lower is not None
    assert finding.lower > 0.0


def test_the_same_version_is_not_rolled_back(tmp_path: Path) -> None:
    # Whether it is shown to be harmless goes by how steady the machine is.
    assert _judged(tmp_path).verdict in (Verdict.PROMOTE, Verdict.HOLD)
