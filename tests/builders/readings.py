"""A node with GPUs, and stored readings of it, written as the writer writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from django.db import connection

from fleet.models import Gpu, HardwareKind, HardwareModel, Node, Rack, Site
from telemetry import samples
from telemetry.rollups import marks
from telemetry.samples import NULL_INT, Array, Column, Rows, Table
from telemetry.tiers import raw_width


def make_node(name: str = "n1", *, gpus: int = 2, site: str = "oslo", rack: str = "A01") -> Node:
    """Return a node in a rack (made where missing) with GPUs of slowdown 87 °C, 1980 MHz, 700 W."""
    at, _ = Site.objects.get_or_create(name=site)
    holder, _ = Rack.objects.get_or_create(site=at, name=rack, defaults={"budget_w": 40_000})
    model, _ = HardwareModel.objects.get_or_create(
        name="H100",
        kind=HardwareKind.GPU,
        rated_w=700,
        idle_w=70,
        slowdown_c=87,
        sm_max_mhz=1980,
        mem_bytes=80 * 2**30,
    )
    node = Node.objects.create(name=name, rack=holder)
    Gpu.objects.bulk_create(Gpu(node=node, index=index, model=model) for index in range(gpus))
    return node


def write_samples(table: Table, source: int, ts: Sequence[float], **columns: Any) -> None:
    """Store readings of one thing. A scalar stands in every row, None is missing."""
    rows = Rows(table, {c.name: _values(c, len(ts), columns.get(c.name)) for c in table.columns})
    rows.columns["ts"] = np.array(ts, dtype="f8")
    rows.columns[table.key] = np.full(len(ts), source, dtype="i8")
    width = raw_width()
    with connection.cursor() as cursor:
        raw = cursor.cursor
        samples.create_partitions(raw, samples.partitions_for(table, rows.columns["ts"], width))
        samples.copy(raw, rows)
        marks.note(raw, [rows])


def _values(column: Column, count: int, given: Any) -> Array:
    values = given if isinstance(given, Sequence) else [given] * count
    missing = np.nan if column.is_float else NULL_INT
    return np.array([missing if v is None else v for v in values], dtype=column.dtype)
