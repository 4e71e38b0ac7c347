"""The adapter for bare PyTorch, with two ranks over gloo."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.stack import free_port

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="needs PyTorch: pip install -r examples/ddp/requirements.txt",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of two ranks tells of itself."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {
        **os.environ,
        "HEADROOM_DIRECTIVES": str(folder / "told"),
        "HEADROOM_STATUS": str(folder / "status"),
    }
    script, port = Path(__file__).with_name("two_ranks.py"), str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), port],
            env={**environment, "PYTHONPATH": str(Path(__file__).resolve().parents[4])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = []
    try:
        for rank in ranks:
            output, trouble = rank.communicate(timeout=120)
            assert rank.returncode == 0, trouble
            said.append(json.loads(output.splitlines()[-1]))
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    return said


def test_ranks_agree_on_the_greatest_of_each_value(told: list[Any]) -> None:
    assert [each["greatest"] for each in told] == [[1.0, 0.0]] * 2


def test_both_ranks_save_after_the_same_step(told: list[Any]) -> None:
    assert told[0]["saved"] == told[1]["saved"]
    assert len(told[0]["saved"]) == 1


def test_one_rank_of_a_machine_speaks_for_it(told: list[Any]) -> None:
    assert [each["is_first_here"] for each in told] == [True, False]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_batch_in_parts_trains_as_a_whole_one_and_exchanges_gradients(
    told: list[Any], kind: str
) -> None:
    whole, in_parts = told[0][kind]
    assert in_parts == pytest.approx(whole, abs=1e-6)
    # Of other ranks, too: by itself each would have come elsewhere.
    assert in_parts == pytest.approx(told[1][kind][1], abs=1e-7)
    assert in_parts != pytest.approx(told[0]["plain"], abs=1e-4)


def test_ddp_and_fsdp_train_alike(told: list[Any]) -> None:
    assert told[0]["fsdp"][1] == pytest.approx(told[0]["ddp"][1], abs=1e-6)


def test_a_learning_rate_is_scaled_for_one_step(told: list[Any]) -> None:
    assert told[0]["lr"] == [0.05, 0.1]


def test_the_rank_that_is_early_waits_for_the_gradients_of_the_late_one(told: list[Any]) -> None:
    assert [each["sync"][0] for each in told] == [True, True]
    # The other was late by 0.4 s in each of three steps.
    assert told[0]["sync"][1] > 0.4
    assert told[0]["sync"][1] > told[1]["sync"][1]
