"""The whole way in (HTTP, Redis, Celery, Postgres) beside a raw COPY of the same rows.

The load comes from a process of its own (``python -m lab load``), whose CPU is told apart. Batches
of racks (64 GPUs) and of nodes (8 GPUs) come as fast as the server takes them; then a backlog is
drained that was pushed while no writer could begin; then 100,000 GPUs push each ten seconds for a
minute. The ceiling is psycopg's binary COPY of the same rows, prepared beforehand, into a table of
the same shape on the same server, which has the machine to itself.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import django_in, report
from bench.feed import NODE_GPUS, RACK_GPUS, SENDERS, enroll_agents
from bench.readings import STEP_S, Readings
from bench.stack import REPOSITORY, Stack, running

GPUS = 10_240
FULL_SPEED_S = 20.0
BACKLOG_ROWS = 1_000_000
FLEET_GPUS = 100_000
FLEET_ROWS_PER_S = 10_000
FLEET_S = 60.0
#: Until each agent was heard once, every process learns what it will know from then on.
FLEET_WARM_UP_S = 12.0
#: At a pace so many are enough that no batch waits in the client.
_PACED_SENDERS = 64
COPY_BATCH_ROWS = 10_000
COPY_BATCHES = 40
#: What a load of 100,000 GPUs takes until its first row is stored: inventory, agents, layouts.
_PATIENCE_S = 300.0
#: The machine's own agent pushes, too.
_OTHERS = 1.01


def run() -> None:
    with running() as stack:
        django_in.set_up(stack)
        token_file = stack.state_dir / "bench-token"
        token_file.write_text(token := django_in.operator_token())
        racks = full_speed(stack, token_file, batch_gpus=RACK_GPUS)
        nodes = full_speed(stack, token_file, batch_gpus=NODE_GPUS)
        drained = drain_backlog(stack, token)
        ceiling = copy_ceiling()
        fleet = paced(stack, token_file)
    report.show(
        "ingest",
        {
            "rows_per_s": racks.rows_per_s,
            "copy_ceiling_rows_per_s": ceiling,
            "drain_rows_per_s": drained,
            "share_of_ceiling": drained / ceiling,
            "cpu_s_per_million_values": racks.cpu_s_per_million_values,
            "client_cpu_s_per_million_values": racks.client_cpu_s_per_million_values,
            "rows_per_s_node_batches": nodes.rows_per_s,
            "cpu_s_per_million_values_node_batches": nodes.cpu_s_per_million_values,
            "rows_per_s_100k": fleet.rows_per_s,
            "machine_share_100k": fleet.machine_share,
            "client_share_100k": fleet.client_share,
            "cpu_s_per_million_values_100k": fleet.cpu_s_per_million_values,
            "visible_p50_s": report.percentile(fleet.ages_s, 0.5),
            "visible_p99_s": report.percentile(fleet.ages_s, 0.99),
            "rows": racks.rows,
            "values_per_row": racks.values_per_row,
            **{f"cpu_share_{name}": share for name, share in racks.shares.items()},
        },
        {
            "rows_per_s": "from the first push to the last durable row, the client included",
            "drain_rows_per_s": f"{BACKLOG_ROWS:,} rows that waited in the stream",
            "cpu_s_per_million_values": "web, worker, beat, Valkey and Postgres together",
            "rows_per_s_100k": f"of {FLEET_ROWS_PER_S:,} that were to be pushed",
            "machine_share_100k": f"of all cores, at {FLEET_ROWS_PER_S:,} rows/s for {FLEET_S:g} s",
            "visible_p99_s": "then; from the reading to the live frame",
        },
    )


# --- The load ------------------------------------------------------------------------------------


def start_load(
    stack: Stack, token_file: Path, *, gpus: int, batch_gpus: int, rate: float, **options: Any
) -> subprocess.Popen[str]:
    """Start ``python -m lab load``; the options are its own."""
    options |= {"gpus": gpus, "batch_gpus": batch_gpus, "rate": rate}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [
        sys.executable, "-X", "faulthandler", "-m", "lab", "load",
        "--server", stack.url, "--token-file", str(token_file), *flags,
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def result_of(load: subprocess.Popen[str], *, complete: bool = True) -> dict[str, Any]:
    """Wait for a load and return its result; ``complete``: it has to be stored."""
    output, _ = load.communicate()
    if load.returncode and complete:
        raise RuntimeError(f"lab load ended with {load.returncode}: {output}")
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


@contextmanager
def first_row() -> Iterator[None]:
    """Wait at the end of the block until a batch of a load that it starts is stored.

    What the import of its fleet costs is not the way in's.
    """
    from telemetry.models import IngestPosition

    # The machine's own agent pushes, too.
    # A position is there from the first layout on, at 0.
    positions = IngestPosition.objects.filter(agent__name__startswith="load-", mark__gt=0)
    before = positions.count()
    yield
    end = time.monotonic() + _PATIENCE_S
    while positions.count() == before:
        if time.monotonic() > end:
            raise TimeoutError("no row is stored")
        time.sleep(0.05)


# --- As fast as the server takes them ------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """The cost of storing readings. CPU: of the services, and of the client that pushed."""

    rows: int
    rows_per_s: float
    values_per_row: int
    cpu_s_per_million_values: float
    client_cpu_s_per_million_values: float
    #: of the CPU time, by service
    shares: dict[str, float]


def full_speed(
    stack: Stack,
    token_file: Path,
    *,
    batch_gpus: int,
    gpus: int = GPUS,
    duration_s: float = FULL_SPEED_S,
) -> Cost:
    """Return the cost of taking batches of ``batch_gpus`` GPUs as fast as they are taken."""
    with first_row():
        load = start_load(
            stack, token_file, gpus=gpus, batch_gpus=batch_gpus, rate=0, duration_s=duration_s,
            threads=SENDERS,
        )  # fmt: skip
    before = stack.cpu_seconds()
    done = result_of(load)
    used = {name: total - before[name] for name, total in stack.cpu_seconds().items()}
    rows, values_per_row = int(done["rows_stored"]), _values_per_row()
    millions = rows * values_per_row / 1e6
    total = sum(used.values())
    return Cost(
        rows=rows,
        rows_per_s=rows / float(done["stored_s"]),
        values_per_row=values_per_row,
        cpu_s_per_million_values=total / millions,
        client_cpu_s_per_million_values=float(done["cpu_s"]) / millions,
        shares={name: share / total for name, share in used.items()},
    )


def _values_per_row() -> int:
    """Return how many readings the newest row holds: its columns that are not null."""
    from django.db import connection

    from telemetry import samples

    with connection.cursor() as cursor:
        names = ", ".join(column.name for column in samples.GPU.fields)
        cursor.execute(f"SELECT num_nonnulls({names}) FROM gpu_sample ORDER BY ts DESC LIMIT 1")
        return int(cursor.fetchone()[0])


# --- A backlog -----------------------------------------------------------------------------------


def drain_backlog(stack: Stack, token: str, rows: int = BACKLOG_ROWS) -> float:
    """Return the rows/s at which a stream is drained that was filled while no writer could begin.

    From the moment at which one may to the commit of the last row. Each batch is pushed once, so
    that none is a duplicate, which would cost less.
    """
    from telemetry import stream, tasks
    from telemetry.writer import only_one

    steps = rows // GPUS
    readings = Readings(GPUS, start_s=time.time() - (steps + 1) * STEP_S)
    agents = enroll_agents(stack.url, token, readings, RACK_GPUS)
    agents.encode(readings.steps(steps))
    batches = steps * len(agents.names)
    with _writers_kept_out(only_one):
        agents.push(0, steps)
        waiting = stream.backlog(0)
        if not batches <= waiting <= batches * _OTHERS:
            raise RuntimeError(f"{waiting} batches wait in the stream, of {batches} that were sent")
    began = time.perf_counter()
    tasks.write.delay(0)
    while stream.backlog(0):
        time.sleep(0.02)
    return steps * GPUS / (time.perf_counter() - began)


@contextmanager
def _writers_kept_out(only_one: Callable[[int], AbstractContextManager[bool]]) -> Iterator[None]:
    """Hold the lock of the first shard's writer, once the one at work has ended."""
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        with only_one(0) as held:
            if held:
                yield
                return
        time.sleep(0.02)
    raise TimeoutError("the writer does not end")


# --- A fleet at its pace -------------------------------------------------------------------------


@dataclass(frozen=True)
class Paced:
    """A fleet at its pace. Shares are of all cores of the machine."""

    #: what was pushed: less than was wanted where the server, or the client, did not keep up
    rows_per_s: float
    machine_share: float
    client_share: float
    cpu_s_per_million_values: float
    #: of the CPU time, by service
    shares: dict[str, float]
    #: from a reading's time to the live frame, s
    ages_s: list[float]
    #: connections of the client that the server had closed when they were wanted again
    reconnects: int


def paced(
    stack: Stack,
    token_file: Path,
    *,
    gpus: int = FLEET_GPUS,
    batch_gpus: int = RACK_GPUS,
    rows_per_s: float = FLEET_ROWS_PER_S,
    duration_s: float = FLEET_S,
    warm_up_s: float = FLEET_WARM_UP_S,
) -> Paced:
    """Push ``rows_per_s`` for ``duration_s``, after ``warm_up_s``.

    Return the CPU used and how soon rows are seen.
    """
    with first_row():
        load = start_load(
            stack, token_file, gpus=gpus, batch_gpus=batch_gpus, rate=rows_per_s,
            duration_s=warm_up_s + duration_s + 2, threads=_PACED_SENDERS,
        )  # fmt: skip
    time.sleep(warm_up_s)
    with watching() as ages:
        before, began = stack.cpu_seconds(), time.perf_counter()
        time.sleep(duration_s)
        used = {name: total - before[name] for name, total in stack.cpu_seconds().items()}
        elapsed_s = time.perf_counter() - began
    done = result_of(load)
    cores, total = os.cpu_count() or 1, sum(used.values())
    pushed_per_s = float(done["rows_per_s"])
    millions = pushed_per_s * elapsed_s * _values_per_row() / 1e6
    return Paced(
        rows_per_s=pushed_per_s,
        machine_share=total / (elapsed_s * cores),
        client_share=float(done["cpu_s"]) / (float(done["stored_s"]) * cores),
        cpu_s_per_million_values=total / millions,
        shares={name: share / total for name, share in used.items()},
        ages_s=ages,
        reconnects=int(done["reconnects"]),
    )


@contextmanager
def watching() -> Iterator[list[float]]:
    """Note for every reading that the live frame takes up in the block its age at that moment, s.

    The list is complete after the block.
    """
    from telemetry import frame

    ages: list[float] = []
    done = threading.Event()

    def watch() -> None:
        live = frame.read()
        while not done.is_set():
            time.sleep(0.01)
            if frame.version() == live.version:
                continue
            seen, live = live.gpu["ts"], frame.read()
            ts = live.gpu["ts"]
            # Every reading that came with this change waited from its own time until now.
            fresh = ts[ts > np.pad(seen, (0, len(ts) - len(seen)))]
            ages.extend((time.time() - fresh).tolist())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield ages
    finally:
        done.set()
        watcher.join()


# --- The ceiling ---------------------------------------------------------------------------------


def copy_ceiling() -> float:
    """Return rows/s of COPY alone, in batches that are encoded before the clock starts."""
    from django.db import connection

    from config.ownership import as_owner
    from telemetry import samples

    chunks = list(samples.encode(_rows_like_stored()))
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE copy_ceiling (LIKE gpu_sample)")
        cursor.execute("CREATE INDEX ON copy_ceiling (gpu_id, ts)")
        cursor.execute("CREATE INDEX ON copy_ceiling USING brin (ts)")
        started = time.perf_counter()
        for _ in range(COPY_BATCHES):
            samples.copy_encoded(cursor.cursor, "copy_ceiling", samples.GPU, chunks)
        elapsed_s = time.perf_counter() - started
        cursor.execute("DROP TABLE copy_ceiling")
    return COPY_BATCHES * COPY_BATCH_ROWS / elapsed_s


def _rows_like_stored() -> Any:
    """Return made-up rows that are null in the columns in which the newest stored row is."""
    from django.db import connection

    from telemetry import samples
    from telemetry.samples import NULL_INT, Rows

    with connection.cursor() as cursor:
        names = ", ".join(c.name for c in samples.GPU.fields)
        cursor.execute(f"SELECT {names} FROM gpu_sample ORDER BY ts DESC LIMIT 1")
        newest = dict(zip(names.split(", "), cursor.fetchone(), strict=True))
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {}
    for c in samples.GPU.columns:
        if newest.get(c.name) is None:
            missing = np.nan if c.dtype.kind == "f" else NULL_INT
            columns[c.name] = np.full(COPY_BATCH_ROWS, missing, c.dtype)
        else:
            columns[c.name] = rng.uniform(0, 1000, COPY_BATCH_ROWS).astype(c.dtype)
    columns["gpu_id"] = np.arange(COPY_BATCH_ROWS)
    columns["ts"] = np.full(COPY_BATCH_ROWS, time.time())
    return Rows(samples.GPU, columns)
