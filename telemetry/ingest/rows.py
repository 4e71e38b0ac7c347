"""Rows that are put together from pieces: by GPU and time, until nodes can report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from headroom.contracts import GpuColumns, NodeReport
from telemetry.ingest.columns import element_types

__all__ = ["Place", "Row", "Rows", "aligned", "merged", "reports_of", "rows_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU of the inventory."""

    node: str
    gpu: int


#: What is known of one GPU at one time, by field of the contract.
Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[tuple[Place, float], Row]

_FIELDS = [name for name in element_types(GpuColumns) if name not in ("ts", "gpu")]


def reports_of(rows: Rows) -> list[NodeReport]:
    """Return ``rows`` as their nodes report them."""
    by_node: dict[str, list[tuple[float, int, Row]]] = {}
    for (place, ts), row in rows.items():
        by_node.setdefault(place.node, []).append((ts, place.gpu, row))
    return [NodeReport(node=node, gpus=_columns(found)) for node, found in by_node.items()]


def _columns(found: list[tuple[float, int, Row]]) -> GpuColumns:
    given = {name for _, _, row in found for name in row}
    return GpuColumns(
        ts=[ts for ts, _, _ in found],
        gpu=[gpu for _, gpu, _ in found],
        **{name: [row.get(name) for _, _, row in found] for name in _FIELDS if name in given},
    )


def rows_of(reports: Iterable[NodeReport]) -> Rows:
    """Return the rows that :func:`reports_of` made ``reports`` of."""
    rows: Rows = {}
    for report in reports:
        if report.gpus is None:
            continue
        columns = {n: v for n, v in msgspec.structs.asdict(report.gpus).items() if v is not None}
        for i, (ts, gpu) in enumerate(zip(columns.pop("ts"), columns.pop("gpu"), strict=True)):
            row = {name: values[i] for name, values in columns.items() if values[i] is not None}
            rows[Place(report.node, gpu), ts] = row
    return rows


def merged(pieces: Iterable[Rows]) -> Rows:
    """Return the rows that the pieces form together. Of two values of a field the first counts."""
    whole: Rows = {}
    for piece in pieces:
        for key, row in piece.items():
            known = whole.get(key)
            whole[key] = row if known is None else _joined(known, row)
    return whole


def _joined(first: Row, second: Row) -> Row:
    joined = second | first
    if "mig_instances" in first and "mig_instances" in second:
        # Different instances of one GPU: what is theirs adds up.
        for name in ("mig_instances", "mem_used"):
            if name in joined:
                joined[name] = first.get(name, 0) + second.get(name, 0)
    return joined


def aligned(rows: Rows, within_s: float) -> Rows:
    """Return ``rows`` with those of one GPU put together that lie within ``within_s``.

    A sender that reads one metric after the other gives each a time of its own. They take that of
    the first; a second value of the same field begins a new row.
    """
    found: Rows = {}
    open_: dict[Place, float] = {}
    for (place, ts), row in sorted(rows.items(), key=lambda item: item[0][1]):
        start = open_.get(place)
        if start is not None and ts - start <= within_s and not row.keys() & found[place, start]:
            found[place, start] |= row
        else:
            open_[place] = ts
            found[place, ts] = dict(row)
    return found
