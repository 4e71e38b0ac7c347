"""What has to be in Postgres after the faults, and what is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from bench.stack import Stack
from headroom.contracts import Columns, TelemetryBatch
from tests.integration.faults.agents import RealAgent

#: What is compared of each reading, beside its time and its GPU.
GPU_FIELDS = ("power_w", "energy_j", "temp_c", "sm_mhz", "mem_used", "throttle")
HOST_FIELDS = ("cpu_util", "mem_used")
#: Narrower in Postgres than in the contract.
_FLOAT4 = frozenset({"power_w", "temp_c", "sm_mhz", "cpu_util"})
_MICROSECOND = 1e-6

Table = NDArray[np.float64]


def sealed_rows(agent: RealAgent, block: str, fields: Iterable[str]) -> Table:
    """Return a row (ts, index, fields) for each reading in what ``agent`` sealed, in order."""
    rows: list[tuple[Any, ...]] = []
    for batch in agent.sealed().values():
        for columns in _blocks(batch, block):
            index = getattr(columns, "gpu", None) or [0] * len(columns)
            values = [getattr(columns, name) or [None] * len(columns) for name in fields]
            rows.extend(zip(columns.ts, index, *values, strict=True))
    table = _table(rows)
    for place, name in enumerate(fields, start=2):
        if name in _FLOAT4:
            table[:, place] = table[:, place].astype(np.float32)
    return table


def stored_rows(stack: Stack, agent: RealAgent, block: str, fields: Iterable[str]) -> Table:
    """Return the same of what Postgres holds of the machine of ``agent``."""
    # As float8, since a float4 is handed out in fewer digits than it has.
    names = ", ".join(f"sample.{name}::float8" for name in fields)
    source = {
        "gpus": "gpu_sample AS sample JOIN fleet_gpu AS thing ON thing.id = sample.gpu_id"
        " JOIN fleet_node AS node ON node.id = thing.node_id",
        "host": "host_sample AS sample JOIN fleet_node AS node ON node.id = sample.node_id",
    }[block]
    index = {"gpus": "thing.index", "host": "0"}[block]
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            f"SELECT extract(epoch FROM sample.ts)::float8, {index}, {names}"
            f" FROM {source} WHERE node.name = %s",
            [agent.name],
        ).fetchall()
    return _table(found)


def differences(expected: Table, found: Table) -> list[str]:
    """Return how the two differ, one sentence each; none where each row is there once, and equal.

    Both are in order of time and index, so that a row that is missing or there twice shows.
    """
    if len(expected) != len(found):
        return [f"{len(expected)} readings were sealed, {len(found)} are stored"]
    late = np.flatnonzero(np.abs(expected[:, 0] - found[:, 0]) > 2 * _MICROSECOND)
    other = np.flatnonzero(
        ~np.isclose(expected[:, 1:], found[:, 1:], rtol=0, atol=0, equal_nan=True).all(axis=1)
    )
    return [f"row {row}: {expected[row]} became {found[row]}" for row in {*late, *other}]


def rows_by_batch(stack: Stack) -> dict[str, dict[int, int]]:
    """Return of each agent of the load the rows in Postgres by the seq of their batch."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            """
            SELECT agent.name, sample.energy_j::bigint, count(*)
            FROM gpu_sample AS sample
            JOIN fleet_gpu AS gpu ON gpu.id = sample.gpu_id
            JOIN telemetry_agent_nodes AS scope ON scope.node_id = gpu.node_id
            JOIN telemetry_agent AS agent ON agent.id = scope.agent_id
            WHERE agent.name LIKE 'load-%'
            GROUP BY agent.name, sample.energy_j
            """
        ).fetchall()
    agents: dict[str, dict[int, int]] = defaultdict(dict)
    for name, seq, rows in found:
        agents[name][seq] = rows
    return dict(agents)


def doubles(stack: Stack) -> int:
    """Return how many readings of one thing at one time are there more than once."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            """
            SELECT (SELECT count(*) - count(DISTINCT (gpu_id, ts)) FROM gpu_sample)
                 + (SELECT count(*) - count(DISTINCT (node_id, ts)) FROM host_sample)
            """
        ).fetchone()
    assert found is not None
    return int(found[0])


def minutes(stack: Stack) -> tuple[dict[datetime, int], dict[datetime, int]]:
    """Return how many readings of GPUs each minute that has ended has: stored, and rolled up."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        stored = connection.execute(
            "SELECT date_trunc('minute', ts) AS minute, count(*) FROM gpu_sample"
            " WHERE ts < date_trunc('minute', now()) GROUP BY minute"
        ).fetchall()
        rolled_up = connection.execute(
            "SELECT ts, sum(readings) FROM gpu_minute GROUP BY ts"
        ).fetchall()
    return dict(stored), {ts: int(readings) for ts, readings in rolled_up}


def mark(stack: Stack, agent: RealAgent) -> int:
    """Return up to which seq the server says that it stored all that ``agent`` sealed."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            """
            SELECT position.mark FROM telemetry_ingestposition AS position
            JOIN telemetry_agent AS agent ON agent.id = position.agent_id
            WHERE agent.name = %s AND position.boot_id = %s
            """,
            [agent.name, agent.boot_id()],
        ).fetchone()
    return 0 if found is None else int(found[0])


def _blocks(batch: TelemetryBatch, block: str) -> list[Columns]:
    return [
        columns for report in batch.nodes if (columns := getattr(report, block, None)) is not None
    ]


def _table(rows: list[tuple[Any, ...]]) -> Table:
    """Return rows in order of time and index; null is NaN."""
    table = np.array(rows, dtype=np.float64)
    return table[np.lexsort((table[:, 1], table[:, 0]))] if len(table) else table
