"""The joint peak beside measured nodes of real training runs, which nothing here was fitted to.

The rule, written down before the first run: racks of eight nodes, each with a run of one of six
kinds that was drawn at random, at a random moment of it, on the AC meter. What is known is what the
other runs of its kind drew; the stated peak is what the node is sold for. 200 racks, ten minutes
each, read every two seconds. The bar: at most 1 % of all readings of racks are over what is
reserved.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from admission.core.allocation.joint import Learned, Parts, joint_peak_w, learned, remembered
from admission.core.allocation.reservation import BIN_EDGES_W
from tests.data_sets import data_set

Floats = NDArray[np.float64]

KINDS = ("bert", "dlrm_dcnv2", "llama2_70b_lora", "resnet", "ssd", "unet3d")
#: What a node of eight is sold for.
PEAK_W = 10_200.0
NODES, RACKS, READINGS = 8, 200, 300
BINS = len(BIN_EDGES_W)


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Floats]]:
    """Return the power of each run's node by kind, W, about every two seconds."""
    folder = data_set("mlperf-train-h100-node-power")
    found: dict[str, list[Floats]] = {}
    for kind in KINDS:
        rows = pl.read_csv(folder / f"power_1node_{kind}.csv.gz").filter(
            (pl.col("meter") == "ac") & (pl.col("power_w") > 0.0)
        )
        by_run = sorted(rows.group_by("run_id"), key=lambda each: str(each[0]))
        found[kind] = [part.sort("t_ms")["power_w"].to_numpy().astype(float) for _, part in by_run]
    return found


def seconds_by_bin(power_w: Floats) -> Floats:
    place = np.searchsorted(BIN_EDGES_W, power_w / 8.0, side="left")
    return 2.0 * np.bincount(place, minlength=BINS).astype(float)


def racks(runs: dict[str, list[Floats]], seed: int) -> Iterator[tuple[Floats, Learned]]:
    """Yield what the nodes of racks drew, by reading, and what was known of them."""
    rng = np.random.default_rng(seed)
    for _ in range(RACKS):
        drawn, like, ended = [], [], []
        for _ in range(NODES):
            of_kind = runs[KINDS[rng.integers(len(KINDS))]]
            run = int(rng.integers(len(of_kind)))
            start = int(rng.integers(len(of_kind[run])))
            drawn.append(np.resize(np.roll(of_kind[run], -start), READINGS))
            others = [each for at, each in enumerate(of_kind) if at != run]
            like.append(np.sum([seconds_by_bin(each) for each in others], axis=0))
            ended.append(remembered(len(others)))
        nothing = np.zeros((NODES, BINS))
        yield (
            np.array(drawn),
            learned(
                nothing,
                np.array(like),
                np.array(ended),
                at_work_w=np.zeros(NODES),
                edges_w=BIN_EDGES_W,
            ),
        )


def test_a_rack_of_real_runs_stays_within_what_it_reserves(
    runs: dict[str, list[Floats]], capsys: pytest.CaptureFixture[str]
) -> None:
    over, reserved, single, highest = [], [], [], []
    codes = np.arange(NODES)
    for drawn_w, seen in racks(runs, seed=1):
        parts = Parts(
            budget=np.zeros(NODES, dtype=np.int64),
            gang=codes,
            kind=codes,
            drawn_w=np.zeros(NODES),
            mean_w=8.0 * seen.mean_w,
            high_w=8.0 * seen.high_w,
            deviation_w=8.0 * seen.deviation_w,
            peak_w=np.full(NODES, PEAK_W),
            samples=seen.samples,
        )
        (joint_w,) = joint_peak_w(parts, 1).tolist()
        total_w = drawn_w.sum(axis=0)
        over.append((total_w > joint_w).mean())
        reserved.append(joint_w)
        single.append(8.0 * 1.1 * seen.high_w.sum())
        highest.append(total_w.max())
    with capsys.disabled():
        print(
            f"\n  racks of {NODES} measured nodes: over {np.mean(over):.2%} of readings;"
            f" reserved {np.mean(reserved) / 1e3:.1f} kW, highest {np.mean(highest) / 1e3:.1f} kW,"
            f" sum of p99 and a tenth {np.mean(single) / 1e3:.1f} kW,"
            f" of stated peaks {NODES * PEAK_W / 1e3:.1f} kW"
        )
    assert np.mean(over) <= 0.01
    assert np.mean(reserved) < 0.95 * NODES * PEAK_W
