"""The recordings that can be played: how to know them and how to read them."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from headroom.replay.description import EXAMPLE, FILE, Columns, Description, describe
from headroom.replay.recording import (
    JobPoint,
    Recording,
    RecordingError,
    slug,
)
from headroom.replay.steps import read_steps
from headroom.replay.tables import as_number, as_time, is_missing, read_lines, read_records

__all__ = ["load"]

_TRAINING_COLUMNS = ("run_id", "meter", "node", "t_ms", "power_w")
_EVENT_COLUMNS = ("bench", "run_id", "t_ms", "key", "value", "metadata")
_WALL_COLUMNS = ("model", "scenario", "phase", "t_iso", "power_w")
#: What to play of a folder, by the first of these that it holds.
_DEFAULT_FILES = ("power_64node_gpt3.csv.gz", "wall_power.csv.gz")
_EVENTS_FILE = "training_events.csv.gz"
#: Silence between two runs is cut down to this, s: days of it are in the source.
_BETWEEN_RUNS_S = 60.0
#: Benchmarks whose ``eval_accuracy`` is a loss (log perplexity, cross entropy).
_LOSS_BENCHES = frozenset({"gpt3", "llama2_70b_lora"})
_STEP_TIME_KEYS = ("train_step_time", "train_step_timing in s")


class _Reading(NamedTuple):
    run: str
    node: str
    t_s: float
    power_w: float


@dataclass(frozen=True)
class _Choice:
    """The part of a recording that the user asked for."""

    run: str | None
    meter: str
    said: Description


def load(
    path: Path,
    *,
    run: str | None = None,
    meter: str = "ac",
    machine: str = "",
    description: Path | None = None,
) -> Recording:
    """Read a recording: one file, or the main one of a folder.

    ``run`` picks one run; without it that is the first of a training recording, and all of any
    other. ``meter`` is ``ac`` or ``dc``, for recordings that have both. ``machine`` and
    ``description`` say what was recorded, where the recording does not. Raises
    :class:`RecordingError`.
    """
    file = _choose_file(path)
    choice = _Choice(run, meter, describe(file, description, machine))
    if choice.said.columns is not None:
        read_described = _load_steps if choice.said.columns.step else _load_described
        return read_described(file, choice, choice.said.columns)
    columns = [name.strip() for name in next(iter(read_lines(file)), [])]
    for wanted, read in _SHAPES.items():
        if set(wanted) <= set(columns):
            return read(file, choice)
    expected = " or ".join(", ".join(wanted) for wanted in _SHAPES)
    raise RecordingError(
        f"{file} is no recording that can be played as it is: it has the columns "
        f"{', '.join(columns) or '(none)'}; known are {expected}. A description of it, in {FILE} "
        f"beside it or given with --description, says what they mean:\n{EXAMPLE}"
    )


def _choose_file(path: Path) -> Path:
    if not path.exists():
        raise RecordingError(f"{path} does not exist")
    if not path.is_dir():
        return path
    for name in _DEFAULT_FILES:
        if (path / name).is_file():
            return path / name
    raise RecordingError(
        f"{path} holds no recording that is known: expected is one of {', '.join(_DEFAULT_FILES)}; "
        "or name a single file"
    )


def _load_training(file: Path, choice: _Choice) -> Recording:
    """Read a file of node power during training, and the run's events if they lie beside it."""
    by_run: dict[str, list[_Reading]] = {}
    meters = set()
    for number, (run, meter, node, t_ms, power_w) in read_records(file, _TRAINING_COLUMNS):
        meters.add(meter)
        if meter != choice.meter:
            continue
        t_s = as_number(file, number, "t_ms", t_ms) / 1000
        reading = _Reading(run, node, t_s, as_number(file, number, "power_w", power_w))
        by_run.setdefault(run, []).append(reading)
    if not by_run:
        raise RecordingError(
            f"{file} has no readings of meter {choice.meter!r}; "
            f"it has {', '.join(sorted(meters)) or 'none at all'}"
        )
    in_order = sorted(by_run, key=lambda run: min(r.t_s for r in by_run[run]))
    run = _pick_run(file, choice.run or in_order[0], in_order)
    job, points = _load_events(file.with_name(_EVENTS_FILE), run)
    return _assemble(file, choice, [by_run[run]], job=job, points=points)


def _load_wall_power(file: Path, choice: _Choice) -> Recording:
    """Read a file of one server's wall power: all of its runs, one after another, or one."""
    by_run: dict[str, list[_Reading]] = {}
    for number, (model, scenario, phase, t_iso, power_w) in read_records(file, _WALL_COLUMNS):
        run = f"{model}/{scenario}/{phase}"
        t_s = as_time(file, number, "t_iso", t_iso)
        reading = _Reading(run, "node_0", t_s, as_number(file, number, "power_w", power_w))
        by_run.setdefault(run, []).append(reading)
    if not by_run:
        raise RecordingError(f"{file} has no readings")
    in_order = sorted(by_run, key=lambda run: min(r.t_s for r in by_run[run]))
    if choice.run is not None:
        in_order = [_pick_run(file, choice.run, in_order)]
    return _assemble(file, choice, [by_run[run] for run in in_order])


def _load_described(file: Path, choice: _Choice, columns: Columns) -> Recording:
    """Read a file whose columns a description names: all of its runs, or one."""
    wanted = (columns.time, columns.power, columns.node, columns.run, columns.gpu)
    named = tuple(name for name in wanted if name)
    by_run: dict[str, list[_Reading]] = {}
    #: What each GPU of a node read last, by run and node.
    gpus_w: dict[tuple[str, str], dict[str, float]] = {}
    for number, values in read_records(file, named, columns.pattern):
        row = dict(zip(named, values, strict=True))
        run = row.get(columns.run, "").strip() or "all"
        node = row.get(columns.node, "").strip() or "node_0"
        power_w = _watts(file, number, columns, row[columns.power])
        if power_w is None:
            continue
        if columns.gpu:
            of_node = gpus_w.setdefault((run, node), {})
            of_node[row[columns.gpu].strip()] = power_w
            power_w = sum(of_node.values())
        t_s = as_time(file, number, columns.time, row[columns.time].strip(), columns.time_unit)
        by_run.setdefault(run, []).append(_Reading(run, node, t_s, power_w))
    if not by_run:
        raise RecordingError(f"{file} has no readings of {columns.power!r}")
    if columns.gpu:
        by_run = {run: _whole(readings) for run, readings in by_run.items()}
    in_order = sorted(by_run, key=lambda run: min(r.t_s for r in by_run[run]))
    if choice.run is not None:
        in_order = [_pick_run(file, choice.run, in_order)]
    return _assemble(file, choice, [by_run[run] for run in in_order])


def _load_steps(file: Path, choice: _Choice, columns: Columns) -> Recording:
    """Read a log of training steps: one run of it, as the progress of a job on no machine."""
    by_run = read_steps(file, columns)
    run = _pick_run(file, choice.run or next(iter(by_run)), by_run)
    recording = _assemble(file, choice, [], points=by_run[run])
    return replace(recording, job=f"{recording.title}-{slug(run)}", runs=(run,))


def _whole(readings: list[_Reading]) -> list[_Reading]:
    """Return the last sum of each node and second: by then all of its GPUs were read."""
    last = {(reading.node, math.floor(reading.t_s)): reading for reading in readings}
    return list(last.values())


_WATTS = {"W": 1.0, "mW": 1e-3, "kW": 1e3}


def _watts(file: Path, line: int, columns: Columns, text: str) -> float | None:
    """Return the power; None where it was not read. A unit may stand behind the number."""
    number = text.strip().removesuffix(columns.power_unit).strip()
    if is_missing(number):
        return None
    return as_number(file, line, columns.power, number) * _WATTS[columns.power_unit]


_SHAPES: dict[tuple[str, ...], Callable[[Path, _Choice], Recording]] = {
    _TRAINING_COLUMNS: _load_training,
    _WALL_COLUMNS: _load_wall_power,
}


def _pick_run(file: Path, run: str, known: Iterable[str]) -> str:
    if run not in known:
        raise RecordingError(f"{file} has no run {run!r}; it has {', '.join(known)}")
    return run


def _title(file: Path) -> str:
    """Return a name for the site: the file's, and a mark of its content: no two share one."""
    name = slug(file.name.split(".")[0].removeprefix("power_"))
    with file.open("rb") as raw:
        return f"{name}-{hashlib.file_digest(raw, 'sha256').hexdigest()[:6]}"


def _assemble(
    file: Path,
    choice: _Choice,
    runs: Sequence[list[_Reading]],
    *,
    job: str = "",
    points: Sequence[JobPoint] = (),
) -> Recording:
    """Put the readings of ``runs`` into columns, one run after the other."""
    # Sorting is stable: readings of one time stay in the order of the file.
    ordered = [sorted(readings, key=lambda r: r.t_s) for readings in runs]
    nodes = sorted({r.node for readings in ordered for r in readings}, key=_node_number)
    index = {name: i for i, name in enumerate(nodes)}
    columns = array("d"), array("H"), array("H"), array("d")
    shift_s = 0.0
    for number, readings in enumerate(ordered):
        if columns[0]:
            quiet_s = readings[0].t_s + shift_s - columns[0][-1]
            shift_s -= max(0.0, quiet_s - _BETWEEN_RUNS_S)
        columns[0].extend(r.t_s + shift_s for r in readings)
        columns[1].extend(index[r.node] for r in readings)
        columns[2].extend(number for _ in readings)
        columns[3].extend(r.power_w for r in readings)
    return Recording(
        title=_title(file),
        hardware=choice.said.known_hardware(),
        nodes=tuple(nodes),
        runs=tuple(readings[0].run for readings in ordered),
        t_s=columns[0],
        node=columns[1],
        run=columns[2],
        power_w=columns[3],
        job=job,
        job_points=tuple(p for p in points if not columns[0] or p.t_s >= columns[0][0]),
    )


def _node_number(label: str) -> tuple[int, str]:
    """Sort node_2 before node_10."""
    digits = label.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else -1, label)


def _load_events(file: Path, run: str) -> tuple[str, list[JobPoint]]:
    """Return the job's name and its progress; nothing where there is no such file."""
    if not file.is_file():
        return "", []
    job = ""
    points = []
    for number, (bench, run_id, t_ms, key, value, metadata) in read_records(file, _EVENT_COLUMNS):
        if run_id != run:
            continue
        job = f"{bench}-{run}"
        if key not in ("tracked_stats", "eval_accuracy"):
            continue
        t_s = as_number(file, number, "t_ms", t_ms) / 1000
        said, meta = _json(file, number, value), _json(file, number, metadata)
        point = _job_point(bench, t_s, key, said, meta)
        if point is not None:
            points.append(point)
    return job, sorted(points, key=lambda p: p.t_s)


def _job_point(bench: str, t_s: float, key: str, value: object, meta: object) -> JobPoint | None:
    """Return the job's progress in an event, or None where it tells none.

    ``step`` is the source's own count: steps, samples or tokens, as the benchmark counts them.
    """
    step = _step(meta)
    if key == "eval_accuracy":
        if bench not in _LOSS_BENCHES or not isinstance(value, (int, float)):
            return None
        return JobPoint(t_s=t_s, step=step, loss=float(value))
    if not isinstance(value, dict):
        return None
    step_time_s = next((value[k] for k in _STEP_TIME_KEYS if k in value), None)
    samples_per_s = value.get("throughput")
    if step_time_s is None and samples_per_s is None:
        return None
    return JobPoint(t_s=t_s, step=step, step_time_s=step_time_s, samples_per_s=samples_per_s)


def _step(meta: object) -> int | None:
    if not isinstance(meta, dict):
        return None
    for key in ("step", "samples_count", "epoch_num"):
        if isinstance(meta.get(key), (int, float)):
            return int(meta[key])
    return None


def _json(file: Path, line: int, text: str) -> object:
    try:
        return json.loads(text) if text else None
    except ValueError as exc:
        raise RecordingError(f"{file}, line {line}: {text!r} is no JSON") from exc
