"""Readers of the published measurements that the twin is held against.

Each takes the folder that holds the data sets, and raises :class:`NoData` where one is missing.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Array = NDArray[np.float64]

NODE_POWER = "mlperf-train-h100-node-power"
POWER_LIMITS = "zeus-power-limits"
FLEET = "acme-seren-distributions"
FAST_POWER = "gpu-power-fast"
CAPTURES = "nvidia-smi-captures"
WALL_POWER = "mlperf-inference-h200-wall-power"
STEPS = "nanogpt-h100-steps"
STRAGGLERS = "alibaba-pai-minibatch"

_REPOSITORY = Path(__file__).resolve().parents[2]
#: Where the data sets are, unless somebody says otherwise.
DATA_FOLDER = _REPOSITORY.parent / "shared" / "data"
#: Our own recording, which is part of this repository.
H200_FOLDER = _REPOSITORY / "tests" / "data" / "h200"
#: What Acme's cluster Kalos drew, and how warm and busy its GPUs were.
KALOS_FILE = _REPOSITORY / "tests" / "data" / "published" / "acme-kalos" / "cdf.csv"


class NoData(Exception):
    """A data set is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not there: name the folder that holds the data sets with --data,"
            " or with HEADROOM_TEST_DATA"
        )
        self.path = path


@dataclass(frozen=True)
class NodeReadings:
    """Power of the nodes of one training run at the wall, W, while it trained.

    Rows by node, in order of time; ``t_s`` counts from the start of the training.
    """

    run: str
    node: NDArray[np.intp]
    t_s: Array
    power_w: Array

    @property
    def nodes(self) -> int:
        return int(self.node.max()) + 1

    def of(self, node: int) -> tuple[Array, Array]:
        """Return times and powers of one node."""
        here = self.node == node
        return self.t_s[here], self.power_w[here]


def _found(path: Path) -> Path:
    if not path.exists():
        raise NoData(path)
    return path


@lru_cache(maxsize=2)
def node_power(data: Path, kind: str) -> tuple[NodeReadings, ...]:
    """Return the runs of one kind, such as ``64node_gpt3``, in order of their names.

    What was read before the training began and after it ended is left out, and so is what is no
    reading of a node that runs: zero and less.
    """
    folder = data / NODE_POWER
    rows = pl.read_csv(_found(folder / f"power_{kind}.csv.gz")).filter(
        (pl.col("meter") == "ac") & (pl.col("power_w") > 0)
    )
    spans = run_spans(data)
    found = []
    for (run,), part in sorted(rows.group_by("run_id"), key=lambda each: str(each[0][0])):
        start_ms, stop_ms = spans[str(run)]
        inside = part.filter(pl.col("t_ms").is_between(start_ms, stop_ms)).sort("node", "t_ms")
        _, node = np.unique(inside["node"].to_numpy(), return_inverse=True)
        t_s = (inside["t_ms"].to_numpy() - start_ms) / 1000.0
        power_w = inside["power_w"].to_numpy().astype(np.float64)
        found.append(NodeReadings(str(run), node, t_s, power_w))
    return tuple(found)


def run_spans(data: Path) -> dict[str, tuple[int, int]]:
    """Return the start and the end of the training of each run, in Unix milliseconds."""
    events = _events(data)
    spans = {}
    for (run,), part in events.group_by("run_id"):
        times = {str(key): int(t) for key, t in part.select("key", "t_ms").iter_rows()}
        if "run_start" in times and "run_stop" in times:
            spans[str(run)] = times["run_start"], times["run_stop"]
    return spans


def _events(data: Path) -> pl.DataFrame:
    path = _found(data / NODE_POWER / "training_events.csv.gz")
    return pl.read_csv(path, columns=["run_id", "t_ms", "key"])


def evaluations(data: Path, run: str) -> tuple[Array, Array]:
    """Return starts and ends of the evaluations of a run, seconds after its training began."""
    start_ms, _ = run_spans(data)[run]
    events = _events(data).filter(pl.col("run_id") == run).sort("t_ms")
    starts, stops = (
        (events.filter(pl.col("key") == key)["t_ms"].to_numpy() - start_ms) / 1000.0
        for key in ("eval_start", "eval_stop")
    )
    return starts, stops


@dataclass(frozen=True)
class CappedRuns:
    """Training runs of one GPU under power limits: one workload in each row of the arrays.

    Columns are the limits that all of these workloads ran under. ``speed`` is over the fastest run
    of the workload, ``power_w`` the mean of the run.
    """

    limits_w: Array
    speed: Array
    power_w: Array


def capped_runs(data: Path, gpu: str) -> CappedRuns:
    """Return the workloads that at least three power limits hold back, and that ran under all."""
    rows = pl.read_csv(_found(data / POWER_LIMITS / f"summary_power_{gpu}.csv"))
    limits_w = np.unique(rows["power_limit"].to_numpy().astype(np.float64))
    speeds, powers = [], []
    workload = ["dataset", "network", "batch_size", "optimizer"]
    for _, part in sorted(rows.group_by(workload), key=lambda each: str(each[0])):
        runs = part.sort("power_limit")
        power_w = runs["average_power"].to_numpy().astype(np.float64)
        near = power_w > 0.9 * runs["power_limit"].to_numpy()
        if len(runs) == len(limits_w) and near.sum() >= 3:
            time_s = runs["time_per_epoch"].to_numpy().astype(np.float64)
            speeds.append(time_s.min() / time_s)
            powers.append(power_w)
    return CappedRuns(limits_w, np.array(speeds), np.array(powers))


def fleet_distribution(data: Path, metric: str) -> tuple[Array, Array]:
    """Return values of a metric over a fleet of A100s and the share of samples at or below each."""
    rows = pl.read_csv(_found(data / FLEET / "cdf.csv.gz")).filter(pl.col("metric") == metric)
    return rows["x"].to_numpy().astype(np.float64), rows["cdf_percent"].to_numpy() / 100.0


def kalos_distribution(metric: str) -> tuple[Array, Array]:
    """Return the same of a second cluster, which lies in this repository."""
    rows = pl.read_csv(KALOS_FILE).filter(pl.col("metric") == metric)
    return rows["x"].to_numpy().astype(np.float64), rows["cdf_percent"].to_numpy() / 100.0


@dataclass(frozen=True)
class FastReadings:
    """One GPU read every 7 to 15 ms: seconds from the first reading."""

    t_s: Array
    util: Array
    temp_c: Array
    power_w: Array


def fast_readings(data: Path, name: str) -> FastReadings:
    """Return one recording of ``gpu-power-fast`` by the name of its file, without ``.csv.gz``."""
    rows = list(_rows(_found(data / FAST_POWER / f"{name}.csv.gz")))[1:]
    stamps = [row[0].replace("/", "-").replace(" ", "T") for row in rows]
    at_ms = np.array(stamps, dtype="datetime64[ms]").astype(np.float64)
    t_s = (at_ms - at_ms[0]) / 1000.0
    # The last column is the power at the instant, where the driver has one.
    util, temp_c, power_w = (np.array([float(row[at]) for row in rows]) for at in (1, 3, -1))
    return FastReadings(t_s, util, temp_c, power_w)


def capture(data: Path, gpu: str, state: str) -> dict[str, float]:
    """Return the numbers of one nvidia-smi query by field; ``state`` is ``idle`` or ``load``."""
    name = f"linux-x86_64__nvidia-{gpu}__590.48.01.{state}.query-gpu.csv"
    header, values = _rows(_found(data / CAPTURES / name))
    found = {}
    for field, value in zip(header, values, strict=True):
        number = value.split(" ")[0]
        if number.replace(".", "", 1).isdigit():
            found[field.split(" [")[0].strip()] = float(number)
    return found


@dataclass(frozen=True)
class H200Readings:
    """One H200 read ten times a second.

    The power is by the energy counter, since the reading before.
    """

    t_s: Array
    power_w: Array
    temp_c: Array
    temp_mem_c: Array
    clock: Array


def h200_series() -> H200Readings:
    """Return the recording of an H200 under steps of load; ``clock`` is over the highest."""
    rows = pl.read_csv(_found(H200_FOLDER / "series.csv.gz"))
    names = ("t_s", "energy_j", "temp_c", "temp_mem_c", "sm_mhz")
    t_s, energy_j, temp_c, temp_mem_c, mhz = (
        rows[name].to_numpy().astype(np.float64) for name in names
    )
    power_w = np.diff(energy_j) / np.diff(t_s)
    return H200Readings(t_s[1:], power_w, temp_c[1:], temp_mem_c[1:], mhz[1:] / mhz.max())


def h200_phases() -> dict[str, tuple[float, float]]:
    """Return start and end of each phase of that recording, s; of ``idle``, the last one."""
    rows = pl.read_csv(_found(H200_FOLDER / "phases.csv"))
    return {
        str(phase): (float(begin_s), float(end_s))
        for phase, begin_s, end_s in rows.select("phase", "begin_s", "end_s").iter_rows()
    }


def h200_rates() -> dict[str, float]:
    """Return the compute rate in each phase of matrix products, TFLOP/s."""
    rows = pl.read_csv(_found(H200_FOLDER / "phases.csv"))
    return {
        str(phase): float(rate.split(" ")[0])
        for phase, rate in rows.select("phase", "rate").iter_rows()
        if rate and rate.endswith("TFLOP/s")
    }


def h200_step_times() -> Array:
    """Return the times of the training steps of that recording, s."""
    rows = pl.read_csv(_found(H200_FOLDER / "steps.csv.gz")).filter(pl.col("kind") == "train")
    return rows["took_s"].to_numpy().astype(np.float64)


def wall_power(data: Path) -> dict[tuple[str, str, str], Array]:
    """Return the power of an H200 server by model, scenario and phase, W, of valid readings."""
    rows = pl.read_csv(_found(data / WALL_POWER / "wall_power.csv.gz")).filter(
        pl.col("power_w") > 0
    )
    return {
        (str(model), str(scenario), str(phase)): part["power_w"].to_numpy()
        for (model, scenario, phase), part in rows.group_by(["model", "scenario", "phase"])
    }


def step_times(data: Path) -> dict[int, Array]:
    """Return the times of the steps of each run, s, without those before the clock is steady."""
    rows = pl.read_csv(_found(data / STEPS / "steps.csv.gz")).filter(pl.col("val_loss").is_null())
    found = {}
    for (run,), part in rows.group_by("run"):
        ordered = part.sort("step")
        step, total_ms = ordered["step"].to_numpy(), ordered["train_time_ms"].to_numpy()
        taken_s = np.diff(total_ms) / 1000.0
        # Warm-up, where the clock restarts, and steps whose neighbor was not printed.
        good = (np.diff(step) == 1) & (step[1:] > 50) & (taken_s > 0.0)
        found[int(run)] = taken_s[good]
    return found


def _rows(path: Path) -> Iterator[list[str]]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as lines:
        yield from csv.reader(lines, skipinitialspace=True)
