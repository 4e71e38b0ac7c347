"""From checked batches to rows: names become ids, columns of many batches one array each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headroom.contracts import Columns, GpuColumns, TelemetryBatch, blocks
from telemetry import samples
from telemetry.directory import KnownNode, KnownThing, Names
from telemetry.samples import Array, Rows, Table

#: The blocks of one table: the ids of a block's rows, the block, and when it was received.
_Blocks = list[tuple[list[int], Columns, float]]


@dataclass
class Gathered:
    """The rows of many batches by kind (those of ``frame.KINDS``, and ``job``)."""

    rows: dict[str, Rows] = field(default_factory=dict)
    received_at: dict[str, Array] = field(default_factory=dict)
    #: rows that named what the inventory no longer has
    dropped: int = 0


_TABLES: dict[str, Table] = {
    "gpu": samples.GPU,
    "host": samples.HOST,
    "link": samples.LINK,
    "meter": samples.METER,
    "job": samples.JOB,
}


def job_names(batches: list[TelemetryBatch]) -> set[str]:
    """Return the names of all jobs that the batches mention."""
    names: set[str] = set()
    for batch in batches:
        if batch.jobs is not None:
            names.update(batch.jobs.job)
        for report in batch.nodes:
            if report.gpus is not None and report.gpus.job is not None:
                names.update(name for name in report.gpus.job if name is not None)
    return names


def gather(
    batches: list[tuple[TelemetryBatch, float]], names: Names, job_ids: dict[str, int]
) -> Gathered:
    """Return the rows of ``batches``, each given with the time at which it was received.

    What is named but unknown is left out and counted: the web process knew it, so it was removed
    from the inventory in between.
    """
    found: dict[str, _Blocks] = {kind: [] for kind in _TABLES}
    gathered = Gathered()
    for batch, received_at in batches:
        for report in batch.nodes:
            node = names.node(report.node)
            if report.gpus is not None:
                ids = _gpu_ids(node, report.gpus)
                _keep(found["gpu"], ids, report.gpus, received_at, gathered)
            if report.host is not None:
                host_ids = None if node is None else [node.node_id] * len(report.host)
                _keep(found["host"], host_ids, report.host, received_at, gathered)
        if batch.links is not None:
            ids = _thing_ids(batch.links.link, names.link)
            _keep(found["link"], ids, batch.links, received_at, gathered)
        if batch.meters is not None:
            ids = _thing_ids(batch.meters.meter, names.meter)
            _keep(found["meter"], ids, batch.meters, received_at, gathered)
        if batch.jobs is not None:
            ids = [job_ids[name] for name in batch.jobs.job]
            _keep(found["job"], ids, batch.jobs, received_at, gathered)
    for kind, kept in found.items():
        if kept:
            gathered.rows[kind] = _concatenate(_TABLES[kind], kept, job_ids)
            sizes = [len(ids) for ids, _, _ in kept]
            gathered.received_at[kind] = np.repeat([at for _, _, at in kept], sizes)
    return gathered


def _keep(
    found: _Blocks, ids: list[int] | None, block: Columns, received_at: float, gathered: Gathered
) -> None:
    if ids is None:
        gathered.dropped += len(block)
    elif ids:
        found.append((ids, block, received_at))


def _gpu_ids(node: KnownNode | None, block: GpuColumns) -> list[int] | None:
    if node is None:
        return None
    try:
        return [node.gpu_ids[index] for index in block.gpu]
    except KeyError:
        return None


def _thing_ids(given: list[str], look_up: Callable[[str], KnownThing | None]) -> list[int] | None:
    things = [look_up(name) for name in given]
    ids = [thing.id for thing in things if thing is not None]
    return ids if len(ids) == len(given) else None


def _concatenate(table: Table, found: _Blocks, job_ids: dict[str, int]) -> Rows:
    columns: dict[str, Array] = {
        "ts": np.concatenate([block.ts for _, block, _ in found]),
        table.key: np.concatenate([ids for ids, _, _ in found]),
    }
    for column in table.fields:
        if column.name == "job_id":
            columns["job_id"] = _job_column(found, job_ids)
            continue
        given = [getattr(block, column.name) for _, block, _ in found]
        if all(values is None for values in given):
            columns[column.name] = _nothing(column, sum(len(ids) for ids, _, _ in found))
            continue
        flat: list[Any] = []
        for values, (ids, _, _) in zip(given, found, strict=True):
            flat.extend([None] * len(ids) if values is None else values)
        columns[column.name] = samples.column_array(column, flat)
    return Rows(table, columns)


def _nothing(column: samples.Column, count: int) -> Array:
    return np.full(count, np.nan if column.dtype.kind == "f" else samples.NULL_INT, column.dtype)


def _job_column(found: _Blocks, job_ids: dict[str, int]) -> Array:
    flat: list[int] = []
    for ids, block, _ in found:
        jobs: list[str | None] = getattr(block, "job", None) or [None] * len(ids)
        flat.extend(samples.NULL_INT if job is None else job_ids[job] for job in jobs)
    return np.array(flat, dtype="i8")


def newest_ts(batch: TelemetryBatch) -> float | None:
    """Return the time of the newest reading in ``batch``, or None where it has none."""
    return max((max(block.ts) for _, block in blocks(batch) if block.ts), default=None)
