"""Two versions of the example through ``headroom matrix run``, judged as arms of a rollout."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lab.matrix.result import Verdict as CellVerdict
from lab.matrix.result import loads
from policies.rollouts.judging import Guard, GuardState, Judgement, Verdict, judge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
    ),
]

_EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "ddp" / "train.py"
_PAIRS = 8
#: Three times the passes for each step: the same losses, later.
_SLOWER = ("--work", "12")


def _steps_per_s(folder: Path, *version: str) -> float:
    """Run a version of the example without faults; return how many steps it made in a second."""
    subprocess.run(
        (
            sys.executable, "-m", "headroom", "matrix", "run", "--only", "normal",
            "--repeat", "1", "--out", str(folder), "--", sys.executable, str(_EXAMPLE), *version,
        ),
        env={**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")},
        check=True,
        capture_output=True,
        timeout=300,
    )  # fmt: skip
    (cell,) = loads((folder / "result.json").read_bytes()).cells
    assert cell.verdict is CellVerdict.PASSED, cell.why
    found = next(each.value for each in cell.measures if each.name == "steps_per_s")
    assert found is not None
    return found


def _judged(folder: Path, *changed: str) -> Judgement:
    """Run both versions in turn, each first every other time: what else goes on comes to both."""
    versions = {"old": (), "new": changed}
    blocks = []
    for pair in range(_PAIRS):
        order = ("new", "old") if pair % 2 else ("old", "new")
        made = {name: _steps_per_s(folder / f"{pair}-{name}", *versions[name]) for name in order}
        blocks.append(math.log(made["old"] / made["new"]))
    return judge(
        [Guard("step_time", 0.05)], {"step_time": np.array(blocks)}, {},
        alpha=0.05, beta=0.05, steps=1, soaked=True, is_over=True,
    )  # fmt: skip


def test_a_version_that_takes_longer_for_its_steps_is_rolled_back(tmp_path: Path) -> None:
    found = _judged(tmp_path, *_SLOWER)
    assert found.verdict is Verdict.ROLL_BACK
    (finding,) = found.findings
    assert finding.state is GuardState.WORSE
    assert finding.lower is not None
    assert finding.lower > 0.0


def test_the_same_version_is_not_rolled_back(tmp_path: Path) -> None:
    # Whether it is shown to be harmless goes by how steady the machine is.
    assert _judged(tmp_path).verdict in (Verdict.PROMOTE, Verdict.HOLD)
