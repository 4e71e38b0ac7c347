"""Batches of fixed-width rows, under a layout that agent and server have agreed on.

An agent says once what it reports on and which fields it reads: the layout. The server answers with
an id. From then on a batch is a header and rows of fixed width, in which a GPU, a node, a link or a
meter is its place in the layout, and so is the job that a GPU works for. What has no fixed width
(mounts, Xid errors, progress of jobs, reports of limits, checkpoints and versions) goes as a
:class:`TelemetryBatch`.

All is little-endian and without padding. Integers have 8 bytes, and so have ``ts`` and the fields
in ``WIDE``; all other floats have 4. Missing is NaN, or the least integer.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Annotated, Any

import msgspec
import zstandard
from msgspec import Meta, Struct

from headroom.contracts import (
    AgentStatus,
    BatchError,
    BootId,
    Columns,
    Counter,
    FieldError,
    GpuColumns,
    HostColumns,
    LinkColumns,
    MeterColumns,
    Name,
    NodeReport,
    Seq,
    TelemetryBatch,
    Timestamp,
    check_row_count,
    check_seqs,
    invalid_field,
)

__all__ = [
    "BLOCKS",
    "CONTENT_TYPE",
    "HEADER_BYTES",
    "JOB",
    "NULL_INT",
    "PATH",
    "Agreement",
    "Encoder",
    "Header",
    "Layout",
    "LayoutNode",
    "as_typed",
    "code_of",
    "compressed",
    "decode_layout",
    "fields_of",
    "joined",
    "layout_of",
    "read_header",
    "row_bytes",
]

PATH = "/api/v1/telemetry/layouts"
CONTENT_TYPE = "application/vnd.headroom.rows"
#: Blocks of rows, in the order in which a batch has them.
BLOCKS: Mapping[str, type[Columns]] = {
    "gpus": GpuColumns,
    "host": HostColumns,
    "links": LinkColumns,
    "meters": MeterColumns,
}
#: Stands for a missing integer.
NULL_INT = -(2**63)
#: The floats of 8 bytes, by block.
WIDE = {
    "gpus": frozenset({"energy_j"}),
    "host": frozenset[str](),
    "links": frozenset({"latency_s"}),
    "meters": frozenset({"power_w", "energy_j"}),
}
#: The fields that a row begins with, in place of which it has its time and a place in the layout.
_NO_FIELDS = frozenset({"ts", "gpu", "link", "meter"})
#: The field whose value is a place among the jobs of the layout.
JOB = "job"
_MOST_THINGS = 20_000
_MOST_JOBS = 1_000
_ROW_OF_NODES = re.compile(r"(gpus|host)\.(\w+)\[(\d+)\]")
#: What is smaller is sent as it is.
_SMALL_BYTES = 4096
#: A row begins with its time and the place of what it is about.
_ROW_HEAD = "dI"

_Fields = Annotated[list[Annotated[str, Meta(max_length=50)]], Meta(max_length=64)]


class LayoutNode(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A node that the agent reports on, and the indexes of its GPUs."""

    node: Name
    gpus: Annotated[list[Annotated[int, Meta(ge=0, le=255)]], Meta(max_length=256)] = []


class Layout(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of ``POST /api/v1/telemetry/layouts``: what batches are about, and their columns.

    A GPU's place is the one that it has among the GPUs of all nodes. ``columns`` has the fields of
    each block of rows, by the block's name; the field ``job`` of a GPU is a place in ``jobs``.
    """

    agent: Name
    boot_id: BootId
    version: Annotated[str, Meta(max_length=50, pattern=r"^[^\x00]*$")] = ""
    nodes: Annotated[list[LayoutNode], Meta(max_length=_MOST_THINGS)] = []
    links: Annotated[list[Name], Meta(max_length=_MOST_THINGS)] = []
    meters: Annotated[list[Name], Meta(max_length=_MOST_THINGS)] = []
    jobs: Annotated[list[Name], Meta(max_length=_MOST_JOBS)] = []
    columns: dict[str, _Fields] = {}


class Agreement(Struct, kw_only=True):
    """The answer to a layout: the id that batches begin with, 32 hexadecimal digits."""

    layout: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]


class Header(Struct, array_like=True, frozen=True):
    """What a batch begins with. The counts of its status are as in AgentStatus."""

    layout: bytes
    seq: Seq
    oldest_seq: Seq
    sent_at: Timestamp
    spooled_batches: Counter
    dropped_batches: Counter
    thinned_rows: Counter
    errors: Counter
    #: NaN: not known yet
    skew_s: float
    #: how many rows each block has, in the order of ``BLOCKS``
    gpus: int
    host: int
    links: int
    meters: int

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each block has, in the order of ``BLOCKS``."""
        return self.gpus, self.host, self.links, self.meters


_HEADER = struct.Struct("<16sQQdQQQQd4I")
HEADER_BYTES = _HEADER.size
_HINT = "see 'Rows of fixed width' in docs/reference/telemetry.md"


def read_header(body: bytes) -> Header:
    """Return the header of a batch. Raises :class:`BatchError`."""
    if len(body) < HEADER_BYTES:
        raise BatchError(
            "malformed_body",
            f"{len(body)} bytes are less than the header's {HEADER_BYTES}",
            hint=_HINT,
        )
    try:
        header = msgspec.convert(_HEADER.unpack_from(body), Header)
    except msgspec.ValidationError as exc:
        message, _, place = str(exc).partition(" - at `$[")
        field = Header.__struct_fields__[int(place.partition("]")[0])]
        raise BatchError("invalid_field", message, field=field, hint=_HINT) from exc
    check_seqs(header.seq, header.oldest_seq)
    check_row_count(sum(header.rows))
    return header


@cache
def fields_of(block: str) -> Mapping[str, str]:
    """Return the code (of ``struct``) of each field that a row of ``block`` may have, by name."""
    types = {f.name: f.type for f in msgspec.structs.fields(BLOCKS[block])}
    return {
        name: _code(block, name, annotation)
        for name, annotation in types.items()
        if name not in _NO_FIELDS
    }


def _code(block: str, name: str, annotation: Any) -> str:
    if name == JOB or _is_integer(msgspec.inspect.type_info(annotation)):
        return "q"
    return "d" if name in WIDE[block] else "f"


def _is_integer(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_is_integer(each) for each in kind.types)
    if isinstance(kind, msgspec.inspect.ListType):
        return _is_integer(kind.item_type)
    return isinstance(kind, msgspec.inspect.IntType)


def code_of(block: str, columns: Iterable[str]) -> str:
    """Return the form of a row of ``block`` with ``columns``, for ``struct`` without padding."""
    codes = fields_of(block)
    return _ROW_HEAD + "".join(codes[name] for name in columns)


def row_bytes(block: str, columns: Iterable[str]) -> int:
    """Return how many bytes a row of ``block`` with ``columns`` has."""
    return struct.calcsize("<" + code_of(block, columns))


def decode_layout(body: bytes) -> Layout:
    """Decode and check a layout, which is JSON. Raises :class:`BatchError`."""
    try:
        layout = msgspec.json.decode(body, type=Layout)
    except msgspec.ValidationError as exc:
        raise invalid_field(exc) from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BatchError("malformed_body", f"the body is not valid JSON: {exc}") from exc
    for block, columns in layout.columns.items():
        _check_columns(block, columns)
    if sum(len(node.gpus) for node in layout.nodes) > _MOST_THINGS:
        raise BatchError("too_many_rows", f"at most {_MOST_THINGS} GPUs are taken", field="nodes")
    return layout


def _check_columns(block: str, columns: Sequence[str]) -> None:
    if block not in BLOCKS:
        raise BatchError(
            "invalid_field", f"there is no block {block!r}: {', '.join(BLOCKS)}", field="columns"
        )
    for name in columns:
        if name not in fields_of(block) or columns.count(name) > 1:
            raise BatchError(
                "invalid_field",
                f"{name!r} is no column of {block}, or is there twice",
                field=f"columns.{block}",
                hint=f"its columns are: {', '.join(fields_of(block))}",
            )


# --- What the agent makes ------------------------------------------------------------------------


def layout_of(batch: TelemetryBatch) -> Layout | None:
    """Return the layout of ``batch``; None where it has no rows, or what has no fixed width."""
    has_reports = batch.jobs is not None or batch.limits or batch.checkpoints or batch.versions
    if has_reports or any(r.storage or r.xids for r in batch.nodes):
        return None
    found = {name: list(_blocks(batch, name)) for name in BLOCKS}
    if not any(found.values()):
        return None
    return Layout(
        agent=batch.agent,
        boot_id=batch.boot_id,
        version=batch.status.version if batch.status else "",
        nodes=[
            LayoutNode(node=r.node, gpus=sorted(set(r.gpus.gpu)) if r.gpus else [])
            for r in batch.nodes
        ],
        links=sorted(set(batch.links.link)) if batch.links else [],
        meters=sorted(set(batch.meters.meter)) if batch.meters else [],
        jobs=_jobs(batch),
        columns={name: _given(name, blocks) for name, blocks in found.items() if blocks},
    )


def _jobs(batch: TelemetryBatch) -> list[str]:
    named = {job for r in batch.nodes if r.gpus and r.gpus.job for job in r.gpus.job}
    return sorted(job for job in named if job is not None)


def _blocks(batch: TelemetryBatch, name: str) -> Iterator[Any]:
    if name in ("gpus", "host"):
        yield from (block for r in batch.nodes if (block := getattr(r, name)) is not None)
    elif (block := getattr(batch, name)) is not None:
        yield block


def _given(name: str, blocks: Sequence[Any]) -> list[str]:
    """Return the fields that any of ``blocks`` has a value of."""
    return [
        field
        for field in fields_of(name)
        if any(v is not None for block in blocks for v in getattr(block, field) or ())
    ]


class Encoder:
    """Makes batches under a layout that the server has given ``layout_id``."""

    def __init__(self, layout: Layout, layout_id: str) -> None:
        self.layout = layout
        self._id = bytes.fromhex(layout_id)
        gpus = [(node.node, gpu) for node in layout.nodes for gpu in node.gpus]
        self._gpus = {gpu: place for place, gpu in enumerate(gpus)}
        self._nodes = {node.node: place for place, node in enumerate(layout.nodes)}
        self._links = {name: place for place, name in enumerate(layout.links)}
        self._meters = {name: place for place, name in enumerate(layout.meters)}
        self._jobs: dict[str | None, int | None] = {None: None}
        self._jobs.update((name, place) for place, name in enumerate(layout.jobs))

    def encode(self, batch: TelemetryBatch) -> bytes | None:
        """Return ``batch`` under the layout; None where it does not fit."""
        wanted = layout_of(batch)
        if wanted is None or not self._has_columns(wanted):
            return None
        try:
            blocks = [b"".join(self._rows(name, batch)) for name in BLOCKS]
        except (KeyError, ValueError, OverflowError, struct.error):
            # Something new, or what only the typed form can tell of.
            return None
        counts = [
            len(data) // row_bytes(name, self.layout.columns.get(name, ()))
            for name, data in zip(BLOCKS, blocks, strict=True)
        ]
        return self._header(batch, counts) + b"".join(blocks)

    def _has_columns(self, wanted: Layout) -> bool:
        there = self.layout.columns
        return all(set(c) <= set(there.get(name, ())) for name, c in wanted.columns.items()) and (
            wanted.columns.keys() <= there.keys()
        )

    def _rows(self, name: str, batch: TelemetryBatch) -> Iterator[bytes]:
        if name in ("gpus", "host"):
            for report in batch.nodes:
                if (block := getattr(report, name)) is not None:
                    yield self._packed(name, block, self._places(report, block))
        elif (links := batch.links) is not None and name == "links":
            yield self._packed(name, links, [self._links[each] for each in links.link])
        elif (meters := batch.meters) is not None and name == "meters":
            yield self._packed(name, meters, [self._meters[each] for each in meters.meter])

    def _places(self, report: NodeReport, block: Columns) -> list[int]:
        if isinstance(block, GpuColumns):
            return [self._gpus[report.node, gpu] for gpu in block.gpu]
        return [self._nodes[report.node]] * len(block)

    def _packed(self, name: str, block: Columns, places: list[int]) -> bytes:
        codes, columns = fields_of(name), self.layout.columns[name]
        values = [_filled(self._column(block, each), codes[each], len(block)) for each in columns]
        form = code_of(name, columns) * len(block)
        return struct.pack(
            "<" + form, *chain.from_iterable(zip(block.ts, places, *values, strict=True))
        )

    def _column(self, block: Columns, name: str) -> Sequence[Any] | None:
        values: Sequence[Any] | None = getattr(block, name)
        return values if name != JOB or values is None else [self._jobs[job] for job in values]

    def _header(self, batch: TelemetryBatch, counts: Sequence[int]) -> bytes:
        status = batch.status or AgentStatus()
        return _HEADER.pack(
            self._id,
            batch.seq,
            batch.oldest_seq,
            batch.sent_at,
            status.spooled_batches,
            status.dropped_batches,
            status.thinned_rows,
            status.errors,
            math.nan if status.skew_s is None else status.skew_s,
            *counts,
        )


def compressed(body: bytes) -> tuple[bytes, str]:
    """Return the body of a batch as it is sent, and its Content-Encoding: small ones as they are.

    To undo the encoding costs the server as much as all else that it does with such a batch.
    """
    return (body, "identity") if len(body) < _SMALL_BYTES else (zstandard.compress(body), "zstd")


def _filled(values: Sequence[Any] | None, code: str, rows: int) -> Sequence[Any]:
    """Return a column with what stands for missing in place of None."""
    missing = NULL_INT if code == "q" else math.nan
    if values is None:
        return [missing] * rows
    return [missing if value is None else value for value in values]


def as_typed(batch: TelemetryBatch, error: FieldError) -> FieldError:
    """Return an error in a row of a block, with its path in the typed form of ``batch``.

    Rows of the nodes' blocks count on from node to node: the path says which of whose it is.
    """
    found = _ROW_OF_NODES.fullmatch(error.field)
    row = int(found[3]) if found else 0
    for place, report in enumerate(batch.nodes if found else ()):
        block = getattr(report, found[1]) if found else None
        if block is not None and found is not None:
            if row < len(block):
                path = f"nodes[{place}].{found[1]}.{found[2]}[{row}]"
                return msgspec.structs.replace(error, field=path)
            row -= len(block)
    return error


def joined(known: Layout, wanted: Layout) -> Layout:
    """Return a layout for whatever fits ``known`` or ``wanted``, of one agent.

    Jobs come and go: those of ``wanted`` alone are in it.
    """
    gpus: dict[str, set[int]] = {}
    for node in (*known.nodes, *wanted.nodes):
        gpus.setdefault(node.node, set()).update(node.gpus)
    blocks = known.columns.keys() | wanted.columns.keys()
    return msgspec.structs.replace(
        wanted,
        nodes=[LayoutNode(node=name, gpus=sorted(found)) for name, found in gpus.items()],
        links=sorted({*known.links, *wanted.links}),
        meters=sorted({*known.meters, *wanted.meters}),
        columns={
            name: [*dict.fromkeys((*known.columns.get(name, ()), *wanted.columns.get(name, ())))]
            for name in BLOCKS
            if name in blocks
        },
    )
