"""How busy the memory of a GPU is goes the whole way: pushed, stored, rolled up, asked for."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import psycopg
import pytest
from django.db import connection

from fleet.models import Gpu
from headroom.contracts import GpuColumns, NodeReport, TelemetryBatch
from telemetry import housekeeping, samples
from telemetry.rollups import progress
from tests.builders.accounts import api_client
from tests.builders.batches import make_batch
from tests.builders.readings import make_node, write_samples
from tests.integration.telemetry.conftest import Source, drain_everything
from tests.services import OWNER_URL

pytestmark = pytest.mark.django_db
T0 = 1_800_057_600


def test_what_is_pushed_is_told_apart(source: Source) -> None:
    now = time.time()
    gpus = GpuColumns(ts=[now] * 2, gpu=[0, 1], mem_util=[35, None], mem_bw_util=[12.5, None])
    answer = source.push(_batch(source, gpus))
    assert answer.status_code == 202
    drain_everything()
    ids = Gpu.objects.filter(node=source.node).order_by("index").values_list("pk", flat=True)
    assert _told(ids[0], "range=5m") == {"mem_util": [35], "mem_bw_util": [12.5]}
    # What a source does not tell is missing, and not zero.
    assert _told(ids[1], "range=5m") == {"mem_util": [None], "mem_bw_util": [None]}


def _batch(source: Source, gpus: GpuColumns) -> TelemetryBatch:
    batch = make_batch(source.agent.name, source.node.name)
    report = NodeReport(node=source.node.name, gpus=gpus)
    return msgspec.structs.replace(batch, nodes=[report])


def test_minutes_have_means_and_peaks() -> None:
    with connection.cursor() as cursor:
        progress.begin(cursor.cursor, "gpu_sample", T0)
    gpu = make_node().gpus.order_by("index")[0]
    times = [float(T0 + s) for s in range(0, 120, 10)]
    write_samples(samples.GPU, gpu.pk, times, mem_bw_util=[10, 30] * 6, mem_util=50, power_w=500)
    housekeeping.roll_up(T0 + 3600)
    span = f"from={T0}&to={T0 + 120}&tier=minute&band=1&points=10"
    found = _columns(gpu.pk, span)
    assert found["mem_bw_util"] == pytest.approx([20, 20], rel=0.1)
    assert found["mem_bw_util_max"] == [30, 30]
    assert found["mem_util"] == [50, 50]


def test_partitions_on_their_way_into_the_cold_tier_get_the_columns_too() -> None:
    migration = importlib.import_module("telemetry.migrations.0014_memory_use").Migration
    (operation,) = migration.operations
    relation = "gpu_sample_20270101_0000_0a1b2c3d"
    with _owner() as session:
        session.execute(operation.reverse_sql)
        session.execute(f"CREATE TABLE {relation} (ts timestamptz)".encode())
        session.execute(
            """INSERT INTO telemetry_detachedpartition
                ("table", relation, start, "end", moved_below)
            VALUES ('gpu_sample', %s, '2027-01-01', '2027-01-02', 0)""",
            [relation],
        )
        session.execute(operation.sql)
        found = session.execute(f"SELECT ts, mem_util, mem_bw_util FROM {relation}".encode())
        assert found.fetchall() == []
        session.rollback()


def _owner() -> psycopg.Connection[Any]:
    """Return a session of the tables' owner, who migrates."""
    mine = connection.get_connection_params()
    given = {name: mine[name] for name in ("host", "port", "user", "password", "dbname")}
    login = urlsplit(os.environ.get(OWNER_URL, ""))
    if login.username:
        given |= {"user": unquote(login.username), "password": unquote(login.password or "")}
    return psycopg.connect(**given)


def _told(gpu: int, span: str) -> dict[str, object]:
    found = _columns(gpu, span)
    return {name: found[name] for name in ("mem_util", "mem_bw_util")}


def _columns(gpu: int, span: str) -> dict[str, list[float | None]]:
    query = f"kind=gpu&id={gpu}&fields=mem_util,mem_bw_util&{span}"
    body = api_client().get(f"/api/v1/series?{query}").json()
    columns: dict[str, list[float | None]] = body["columns"]
    return columns
