"""Published series that forecasts are judged on, and the rule that says which are unseen.

Power of single GPUs, of nodes and of sums of nodes, as their meters read it; and, since no series
of power is longer than an hour without a break, the GPUs that ran in three clusters, minute by
minute. The method and its constants were chosen on what :attr:`Series.chosen_on` says alone. Whole
kinds are unseen: another GPU, other benchmarks, more nodes, other virtual clusters, other clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lab.calibration import sources
from lab.traces import openb, philly
from lab.traces.trace import JobTrace

__all__ = ["NOT_SERIES", "READERS", "Series"]

Array = NDArray[np.float64]

QUEUES = "helios-earth-vc-queue"
PHILLY = "philly-jobs"
OPENB = "alibaba-openb-jobs"
#: What is published of power but is no series, and why.
NOT_SERIES = {
    sources.CAPTURES: "single readings, idle and under load",
    sources.POWER_LIMITS: "means of whole epochs",
    sources.FLEET: "distributions without time",
    sources.STEPS: "times of steps; power was read once, before the load",
}
#: A reading is held for so many times the usual distance to the next; then nothing is known.
_HELD = 10.0
#: Runs of one server are joined to what it drew over days; a pause between them is cut to this, s.
_PAUSE_S = 900.0
#: Of traces the first days are taken, d.
_TRACE_DAYS = 14.0


@dataclass(frozen=True, eq=False)
class Series:
    """Loads that were read together: ``values`` is (readings, columns), ``t_s`` their times.

    NaN: not read. ``chosen_on``: the method was chosen on it, so that it proves nothing.
    """

    name: str
    unit: str
    t_s: Array
    values: Array
    chosen_on: bool

    @property
    def cadence_s(self) -> float:
        """The usual time between two readings, s."""
        return float(np.median(np.diff(self.t_s)))

    @property
    def span_s(self) -> float:
        return float(self.t_s[-1] - self.t_s[0])

    def at(self, times_s: Array) -> Array:
        """Return what was read last at each of ``times_s``: (times, columns); NaN: too long ago."""
        row = np.searchsorted(self.t_s, times_s, side="right") - 1
        held_s = times_s - self.t_s[np.maximum(row, 0)]
        good = (row >= 0) & (held_s <= _HELD * self.cadence_s)
        return np.where(good[:, None], self.values[np.maximum(row, 0)], np.nan)


def _folder(data: Path, name: str) -> Path:
    if not (data / name).is_dir():
        raise sources.NoData(data / name)
    return data / name


def _one(name: str, unit: str, t_s: Array, values: Array, chosen_on: bool) -> Series:
    return Series(name, unit, t_s - t_s[0], values[:, None], chosen_on)


# --- Single GPUs ---------------------------------------------------------------------------------


def fast_gpus(data: Path) -> Iterator[Series]:
    """Yield GPUs read every 7 to 13 ms. The method was chosen on the A100, not on the RTX 3090."""
    for name in (
        "5050_A100", "Transient_Response_A100_TR", "pwr_update_freq_A100",
        "Transient_Response_3090_TR", "pwr_update_freq_3090",
    ):  # fmt: skip
        found = sources.fast_readings(data, name)
        yield _one(f"fast/{name}", "W", found.t_s, found.power_w, "A100" in name)


def h200(_data: Path) -> Iterator[Series]:
    """Yield our own recording of an H200 under steps of load: unseen."""
    found = sources.h200_series()
    yield _one("h200/steps", "W", found.t_s, found.power_w, False)


# --- Servers and sums of nodes -------------------------------------------------------------------

#: Benchmarks of inference that the method was chosen on; the other six are unseen.
_CHOSEN_MODELS = ("3d-unet-99.9", "bert-99", "bert-99.9", "dlrm-v2-99", "dlrm-v2-99.9")


def inference(data: Path) -> Iterator[Series]:
    """Yield the wall power of one server: each run, and all runs of its unseen models in turn."""
    path = _folder(data, sources.WALL_POWER) / "wall_power.csv.gz"
    rows = pl.read_csv(path, try_parse_dates=True)
    rows = rows.filter(pl.col("power_w") > 0).sort("t_iso")
    seen = pl.col("model").is_in(_CHOSEN_MODELS)
    for (model, scenario, phase), part in sorted(
        rows.group_by(["model", "scenario", "phase"]), key=lambda each: str(each[0])
    ):
        name = f"inference/{model}/{scenario}/{phase}"
        yield _one(name, "W", *_readings(part), str(model) in _CHOSEN_MODELS)
    for name, part, chosen_on in (
        ("inference/all in turn/chosen on", rows.filter(seen), True),
        ("inference/all in turn", rows.filter(~seen), False),
    ):
        t_s, power_w = _readings(part)
        in_turn_s: Array = np.cumsum(np.minimum(np.diff(t_s, prepend=t_s[0]), _PAUSE_S))
        yield _one(name, "W", in_turn_s, power_w, chosen_on)


def _readings(part: pl.DataFrame) -> tuple[Array, Array]:
    t_ms = part["t_iso"].dt.epoch("ms").to_numpy()
    return t_ms.astype(np.float64) / 1000.0, part["power_w"].to_numpy().astype(np.float64)


#: Kinds of training runs by nodes; the method was chosen on single nodes.
_TRAINING = (
    "1node_bert", "1node_dlrm_dcnv2", "1node_llama2_70b_lora", "1node_resnet", "1node_ssd",
    "1node_unet3d", "8node_llama2_70b_lora", "8node_resnet", "8node_ssd", "9node_unet3d",
    "64node_gpt3", "64node_llama2_70b_lora",
)  # fmt: skip
#: Nodes that hang on one rack, for sums.
_RACK_NODES = 8


def training(data: Path) -> Iterator[Series]:
    """Yield the nodes of each kind of training run, runs in turn; of many nodes their sums, too."""
    for kind in _TRAINING:
        nodes = _in_turn(sources.node_power(data, kind))
        chosen_on = kind.startswith("1node")
        yield Series(f"training/{kind}/nodes", "W", *nodes, chosen_on)
        t_s, watts = nodes
        count = watts.shape[1]
        if count >= _RACK_NODES:
            racks = np.add.reduceat(watts, np.arange(0, count, _RACK_NODES), axis=1)
            yield Series(f"training/{kind}/racks", "W", t_s, racks, chosen_on)
        if count > _RACK_NODES:
            yield Series(
                f"training/{kind}/all", "W", t_s, watts.sum(axis=1, keepdims=True), chosen_on
            )


def _in_turn(runs: tuple[sources.NodeReadings, ...]) -> tuple[Array, Array]:
    """Return the readings of runs one after the other, each 2 s: times, and (times, nodes)."""
    parts, step_s = [], 2.0
    nodes = min(run.nodes for run in runs)
    for run in runs:
        times = np.arange(0.0, run.t_s.max(), step_s)
        columns = []
        for node in range(nodes):
            t_s, power_w = run.of(node)
            row = np.clip(np.searchsorted(t_s, times, side="right") - 1, 0, None)
            columns.append(np.where(times - t_s[row] <= _HELD * step_s, power_w[row], np.nan))
        parts.append(np.stack(columns, axis=1))
    watts = np.concatenate(parts)
    return step_s * np.arange(len(watts), dtype=np.float64), watts


# --- Clusters, by the GPUs that run --------------------------------------------------------------

#: Virtual clusters that the method was chosen on; the other seven are unseen.
_CHOSEN_QUEUES = ("vc3sl", "vc6YE", "vc8Sj")


def queues(data: Path) -> Iterator[Series]:
    """Yield the GPUs that ran in each virtual cluster of Helios Earth, each minute of two weeks."""
    for path in sorted(_folder(data, QUEUES).glob("vc*.csv.gz")):
        gpus = pl.read_csv(path)["running_gpu_num"].to_numpy().astype(np.float64)
        gpus = gpus[: int(_TRACE_DAYS * 1440.0)]
        name = path.name.removesuffix(".csv.gz")
        t_s = 60.0 * np.arange(len(gpus), dtype=np.float64)
        yield _one(f"helios/{name}", "GPU", t_s, gpus, name in _CHOSEN_QUEUES)


def traces(data: Path) -> Iterator[Series]:
    """Yield the GPUs that ran in Philly and in openb, each minute: unseen.

    A job of Philly runs from when it came, since nothing else is published.
    """
    yield _running("philly", philly.load(_folder(data, PHILLY)))
    yield _running("openb", openb.load(_folder(data, OPENB)))


def _running(name: str, trace: JobTrace) -> Series:
    began_s = trace.submit_s + np.nan_to_num(trace.wait_s)
    gpus = trace.gpus * trace.gpu_share
    minutes: Array = 60.0 * np.arange(_TRACE_DAYS * 1440.0) + began_s.min()
    # The first days fill an empty cluster: count from when half of the days taken have passed.
    minutes += _TRACE_DAYS * 86_400.0 / 2.0
    order = np.argsort(began_s)
    ends_s = began_s + trace.runs_s
    by_end = np.argsort(ends_s)
    came = np.append(0.0, np.cumsum(gpus[order]))
    gone = np.append(0.0, np.cumsum(gpus[by_end]))
    running = (
        came[np.searchsorted(began_s[order], minutes, side="right")]
        - gone[np.searchsorted(ends_s[by_end], minutes, side="right")]
    )
    return _one(f"trace/{name}", "GPU", minutes, running, False)


#: Readers of series by the data set that they need; "": none but the repository's own.
READERS: dict[str, Callable[[Path], Iterator[Series]]] = {
    sources.FAST_POWER: fast_gpus,
    "": h200,
    sources.WALL_POWER: inference,
    sources.NODE_POWER: training,
    QUEUES: queues,
    f"{PHILLY}, {OPENB}": traces,
}
