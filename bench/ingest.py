"""The whole way in (HTTP, Redis, Celery, Postgres) beside a raw COPY of the same rows.

The load comes from a process of its own (``python -m sim load``) in batches of 64 GPUs, as fast as
the server takes them for ``rows_per_s``, then at the pace of 20,000 GPUs each 10 s for the time to
visible. The ceiling is psycopg's binary COPY of the same rows, prepared beforehand, into a table of
the same shape on the same server, which has the machine to itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import django_in, report
from bench.stack import REPOSITORY, Stack, running

GPUS = 10_240
FULL_SPEED_S = 20.0
PACED_ROWS_PER_S = 2_000
PACED_S = 20.0
COPY_BATCH_ROWS = 10_000
COPY_BATCHES = 40


def run() -> None:
    with running() as stack:
        django_in.set_up(stack)
        token_file = stack.state_dir / "bench-token"
        token_file.write_text(django_in.operator_token())
        full = _full_speed(stack, token_file)
        paced = _paced(stack, token_file)
        ceiling = _copy_ceiling()
    report.show(
        "ingest",
        {
            "rows_per_s": full.rows_per_s,
            "copy_ceiling_rows_per_s": ceiling,
            "share_of_ceiling": full.rows_per_s / ceiling,
            "cpu_s_per_million_values": full.cpu_s_per_million_values,
            "visible_p50_s": report.percentile(paced, 0.5),
            "visible_p99_s": report.percentile(paced, 0.99),
            "rows": full.rows,
            "values_per_row": full.values_per_row,
            **{f"cpu_share_{name}": share for name, share in full.shares.items()},
        },
        {
            "rows_per_s": "from the first push to the last durable row, the client included",
            "cpu_s_per_million_values": "web, worker, beat, Valkey and Postgres together",
            "visible_p99_s": f"at {PACED_ROWS_PER_S:,} rows/s, sent to in the live frame",
        },
    )


@dataclass(frozen=True)
class _Full:
    rows: int
    rows_per_s: float
    values_per_row: int
    cpu_s_per_million_values: float
    shares: dict[str, float]


def _load(stack: Stack, token_file: Path, **options: Any) -> subprocess.Popen[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [
        sys.executable, "-m", "sim", "load",
        "--server", stack.url, "--token-file", str(token_file), "--gpus", str(GPUS),
        "--batch-gpus", "64", *flags,
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"sim load ended with {process.returncode}: {output}")
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


def _full_speed(stack: Stack, token_file: Path) -> _Full:
    load = _load(stack, token_file, rate=0, duration_s=FULL_SPEED_S)
    _wait_for_first_row()  # what the import of its fleet cost is not the way in's
    before = stack.cpu_seconds()
    done = _result(load)
    used = {name: total - before[name] for name, total in stack.cpu_seconds().items()}
    rows = int(done["rows_stored"])
    values_per_row = _values_per_row()
    total = sum(used.values())
    return _Full(
        rows=rows,
        rows_per_s=rows / float(done["stored_s"]),
        values_per_row=values_per_row,
        cpu_s_per_million_values=total / (rows * values_per_row / 1e6),
        shares={name: share / total for name, share in used.items()},
    )


def _wait_for_first_row() -> None:
    from telemetry.models import IngestPosition

    while not IngestPosition.objects.exists():
        time.sleep(0.05)


def _values_per_row() -> int:
    """Return how many readings a stored row holds: its columns that are not null."""
    from django.db import connection

    from telemetry import samples

    with connection.cursor() as cursor:
        names = ", ".join(column.name for column in samples.GPU.fields)
        cursor.execute(f"SELECT num_nonnulls({names}) FROM gpu_sample LIMIT 1")
        return int(cursor.fetchone()[0])


def _paced(stack: Stack, token_file: Path) -> list[float]:
    """Return, for every change of the live frame, the age of its newest reading when it showed."""
    from telemetry import frame

    ages: list[float] = []
    done = threading.Event()

    def watch() -> None:
        version, newest = frame.version(), time.time()
        while not done.is_set():
            time.sleep(0.01)
            if frame.version() == version:
                continue
            live = frame.read()
            version = live.version
            ts = live.gpu["ts"]
            fresh = ts[ts > newest]
            if len(fresh):
                # Every reading that came with this change waited from its own time until now.
                ages.extend((time.time() - fresh).tolist())
                newest = float(ts.max())

    watcher = threading.Thread(target=watch)
    load = _load(stack, token_file, rate=PACED_ROWS_PER_S, duration_s=PACED_S)
    watcher.start()
    try:
        _result(load)
    finally:
        done.set()
        watcher.join()
    return ages


def _copy_ceiling() -> float:
    """Return rows/s of COPY alone, in batches that are encoded before the clock starts."""
    from django.db import connection

    from telemetry import samples
    from telemetry.samples import NULL_INT, Rows

    now = time.time()
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {
        c.name: np.full(COPY_BATCH_ROWS, np.nan if c.dtype.kind == "f" else NULL_INT, c.dtype)
        for c in samples.GPU.columns
    }
    with connection.cursor() as cursor:
        names = ", ".join(c.name for c in samples.GPU.fields)
        cursor.execute(f"SELECT {names} FROM gpu_sample LIMIT 1")
        filled = [
            column.name
            for column, value in zip(samples.GPU.fields, cursor.fetchone(), strict=True)
            if value is not None
        ]
    for column in samples.GPU.fields:
        if column.name in filled:
            columns[column.name] = rng.uniform(0, 1000, COPY_BATCH_ROWS).astype(column.dtype)
    columns["gpu_id"] = np.arange(COPY_BATCH_ROWS)
    columns["ts"] = np.full(COPY_BATCH_ROWS, now)
    chunks = list(samples.encode(Rows(samples.GPU, columns)))
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE copy_ceiling (LIKE gpu_sample)")
        cursor.execute("CREATE INDEX ON copy_ceiling (gpu_id, ts)")
        cursor.execute("CREATE INDEX ON copy_ceiling USING brin (ts)")
        started = time.perf_counter()
        for _ in range(COPY_BATCHES):
            samples.copy_encoded(cursor.cursor, "copy_ceiling", samples.GPU, chunks)
        elapsed_s = time.perf_counter() - started
        cursor.execute("DROP TABLE copy_ceiling")
    return COPY_BATCHES * COPY_BATCH_ROWS / elapsed_s
