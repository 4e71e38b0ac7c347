"""Between batches and rows.

The web process packs a checked batch into records, one for each row, with ids in place of names:
that is what the stream carries. The writer puts the records of many batches together as one array
of each table, without looking at any of them by itself.

Names of jobs and mounts have ids only once the writer has stored them. Until then a record holds
the place of the name in a list that travels with the batch.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from headroom import layouts
from headroom.contracts import CheckpointReport, Columns, NodeReport, TelemetryBatch, XidColumns
from telemetry import samples
from telemetry.checkpoints.lines import CheckpointLine
from telemetry.directory import AgentScope, KnownNode, KnownThing, Names
from telemetry.limits.lines import LimitLine
from telemetry.samples import NULL_INT, Array, Rows, Table
from telemetry.versions.lines import VersionLine

#: The tables by the kind of thing that they are about.
TABLES: dict[str, Table] = {
    "gpu": samples.GPU,
    "host": samples.HOST,
    "link": samples.LINK,
    "meter": samples.METER,
    "job": samples.JOB,
    "storage": samples.STORAGE,
}
_Thing = TypeVar("_Thing", bound=Hashable)


class XidLine(msgspec.Struct, array_like=True, frozen=True):
    """An Xid error that a node's kernel logged. ``gpu_id`` is None where it is of no known GPU."""

    node_id: int
    gpu_id: int | None
    ts: float
    xid: int
    pci: str
    text: str


class Mount(msgspec.Struct, array_like=True, frozen=True):
    """A mount point of a node."""

    node_id: int
    name: str


class Unjudged(msgspec.Struct, array_like=True):
    """Rows of fixed width as their agent sent them, of which nobody has looked at the values.

    Each begins with its time and a place in ``ids``: int32, little-endian. A column ``job`` has
    places in ``jobs``.
    """

    #: of the block, as in ``headroom.layouts``
    block: str
    #: the columns of a row, with spaces between them
    columns: str
    ids: bytes
    data: memoryview
    jobs: list[str] = []

    @property
    def rows(self) -> int:
        return len(self.data) // row_bytes(self.block, self.columns)


@cache
def row_bytes(block: str, columns: str) -> int:
    """Return how many bytes a row has; ``columns`` as in :class:`Unjudged`."""
    return layouts.row_bytes(block, columns.split())


class Packed(msgspec.Struct, array_like=True):
    """The rows of one batch: records by kind, and the names of which they hold the places."""

    #: a memoryview, since reading it copies nothing
    records: dict[str, memoryview]
    jobs: list[str]
    mounts: list[Mount]
    xids: list[XidLine]
    #: times of the first and the last reading, Unix s; None where there is none
    span: tuple[float, float] | None
    limits: list[LimitLine] = []
    unjudged: list[Unjudged] = []
    checkpoints: list[CheckpointLine] = []
    versions: list[VersionLine] = []

    @property
    def rows(self) -> int:
        """How many rows it has."""
        sizes = (len(data) // TABLES[kind].record.itemsize for kind, data in self.records.items())
        return sum(sizes, len(self.xids)) + sum(each.rows for each in self.unjudged)

    @property
    def weight(self) -> int:
        """How many rows it counts for against its agent's share.

        An event and a report take as much work as ten readings, and last for longer.
        """
        reports = len(self.limits) + len(self.checkpoints) + len(self.versions)
        return self.rows + 9 * len(self.xids) + 10 * reports


#: Tells records that were laid out otherwise, by another release.
LAYOUT = zlib.crc32(
    repr(
        [
            *(table.record.descr for table in TABLES.values()),
            Packed.__struct_fields__,
            Unjudged.__struct_fields__,
        ]
    ).encode()
)


# --- From a batch to records ---------------------------------------------------------------------


class _Places(Generic[_Thing]):
    """Gives each of several things a place in a list, in the order in which they come."""

    def __init__(self) -> None:
        self._places: dict[_Thing, int] = {}

    def of(self, things: Sequence[_Thing | None]) -> list[int]:
        """Return the place of each of ``things``; NULL_INT for None."""
        first = things[0] if things else None
        if things.count(first) == len(things):  # as with the GPUs of one job
            return [self._place(first)] * len(things)
        return [self._place(thing) for thing in things]

    def _place(self, thing: _Thing | None) -> int:
        return NULL_INT if thing is None else self._places.setdefault(thing, len(self._places))

    def things(self) -> list[_Thing]:
        return list(self._places)


class _Reader:
    """Reads all columns of a table off a block, in the order of its records."""

    def __init__(self, table: Table) -> None:
        is_id = {column.name: column.is_id for column in table.columns}
        names = [name for group in table.groups for name in group.columns]
        # Ids come first in a record.
        self._ids = [name for name in names if is_id[name]]
        self._readings = _attributes([name for name in names if not is_id[name]])
        self.width = len(names)
        self._missing = [group.missing for group in table.groups for _ in group.columns]

    def __call__(self, block: _Block) -> list[list[Any]]:
        """Return the columns; one that the block leaves out, or has nulls alone in, is missing."""
        columns = (*map(block.ids.get, self._ids), *self._readings(block.columns))
        return [
            [missing] * block.size
            if column is None or (column[0] is None and column.count(None) == block.size)
            else column
            for column, missing in zip(columns, self._missing, strict=True)
        ]


def _attributes(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda thing: tuple(getattr(thing, name) for name in names)


_READERS = {kind: _Reader(table) for kind, table in TABLES.items()}


class _Block:
    """A block of a batch, with the columns of ids that take the place of its names."""

    def __init__(self, columns: Columns, **ids: list[int]) -> None:
        self.columns = columns
        self.ids = ids
        self.size = len(columns.ts)


class NotPackable(Exception):
    """A batch names an unknown thing, or one not its agent's: ``telemetry.checks`` says which."""


class _Packer:
    """Takes the blocks of one batch apart."""

    def __init__(self, scope: AgentScope, names: Names) -> None:
        self._scope = scope
        self._names = names
        self._blocks: dict[str, list[_Block]] = {}
        self._jobs: _Places[str] = _Places()
        self._mounts: _Places[Mount] = _Places()
        self._xids: list[XidLine] = []
        self._oldest = math.inf
        self._newest = -math.inf

    def pack(self, batch: TelemetryBatch) -> Packed:
        for report in batch.nodes:
            self._take_report(report)
        if (links := batch.links) is not None:
            self._add("link", links, link_id=self._ids(links.link, self._names.link))
        if (meters := batch.meters) is not None:
            self._add("meter", meters, meter_id=self._ids(meters.meter, self._names.meter))
        if (jobs := batch.jobs) is not None:
            self._add("job", jobs, job_id=self._jobs.of(jobs.job))
        # These are no rows, but whoever reports on a job has to be where it runs.
        self._jobs.of([report.job for report in batch.checkpoints])
        return Packed(
            records={
                kind: memoryview(_records(kind, found)) for kind, found in self._blocks.items()
            },
            jobs=self._jobs.things(),
            mounts=self._mounts.things(),
            xids=self._xids,
            span=(self._oldest, self._newest) if self._newest >= 0 else None,
            limits=[LimitLine(self._node(report.node).node_id, report) for report in batch.limits],
            checkpoints=[self._checkpoint_line(report) for report in batch.checkpoints],
            versions=[
                VersionLine(self._node(report.node).node_id, report) for report in batch.versions
            ],
        )

    def _checkpoint_line(self, report: CheckpointReport) -> CheckpointLine:
        site_id = self._node(report.node).site_id
        if report.store.site:
            found = self._names.site(report.store.site)
            if found is None:
                raise NotPackable
            site_id = found
        return CheckpointLine(site_id, report)

    def _node(self, name: str) -> KnownNode:
        node = self._names.node(name)
        if node is None or not self._scope.holds(node_id=node.node_id, site_id=node.site_id):
            raise NotPackable
        return node

    def _take_report(self, report: NodeReport) -> None:
        node = self._node(report.node)
        if (gpus := report.gpus) is not None:
            jobs = {} if gpus.job is None else {"job_id": self._jobs.of(gpus.job)}
            self._add("gpu", gpus, gpu_id=_gpu_ids(node, gpus.gpu), **jobs)
        if (host := report.host) is not None:
            self._add("host", host, node_id=[node.node_id] * len(host))
        if (storage := report.storage) is not None:
            mounts = self._mounts.of([Mount(node.node_id, name) for name in storage.mount])
            self._add("storage", storage, mount_id=mounts, node_id=[node.node_id] * len(storage))
        if (xids := report.xids) is not None and xids.ts:
            self._widen(xids.ts)
            self._xids += _xid_lines(node, xids)

    def _ids(self, given: list[str], look_up: Callable[[str], KnownThing | None]) -> list[int]:
        things = [look_up(name) for name in given]
        ids = [
            thing.id
            for thing in things
            if thing and self._scope.holds(node_id=thing.node_id, site_id=thing.site_id)
        ]
        if len(ids) < len(given):
            raise NotPackable
        return ids

    def _add(self, kind: str, columns: Columns, **ids: list[int]) -> None:
        if columns.ts:
            self._widen(columns.ts)
            self._blocks.setdefault(kind, []).append(_Block(columns, **ids))

    def _widen(self, ts: list[float]) -> None:
        self._oldest = min(self._oldest, *ts)
        self._newest = max(self._newest, *ts)


def pack(batch: TelemetryBatch, scope: AgentScope, names: Names) -> Packed:
    """Return the rows of ``batch``. Raises :class:`NotPackable`."""
    return _Packer(scope, names).pack(batch)


def _gpu_ids(node: KnownNode, indexes: list[int]) -> list[int]:
    try:
        return [node.gpu_ids[index] for index in indexes]
    except KeyError as exc:
        raise NotPackable from exc


def _xid_lines(node: KnownNode, block: XidColumns) -> list[XidLine]:
    nothing: list[None] = [None] * len(block)
    columns = zip(
        block.ts, block.xid, block.gpu or nothing, block.pci or nothing, block.text or nothing,
        strict=True,
    )  # fmt: skip
    return [
        XidLine(
            node_id=node.node_id,
            gpu_id=None if gpu is None else _gpu_ids(node, [gpu])[0],
            ts=ts,
            xid=xid,
            pci=pci or "",
            text=text or "",
        )
        for ts, xid, gpu, pci, text in columns
    ]


def _records(kind: str, found: list[_Block]) -> bytes:
    """Return the rows of ``found``, one record each."""
    by_size: dict[int, list[_Block]] = {}
    for block in found:
        by_size.setdefault(block.size, []).append(block)
    return b"".join(_records_of(kind, size, same) for size, same in by_size.items())


def _records_of(kind: str, size: int, found: list[_Block]) -> bytes:
    """Return the rows of blocks that have ``size`` rows each."""
    columns = [*chain.from_iterable(map(_READERS[kind], found))]
    values = _values(kind, size, columns)
    records = np.empty((len(found), size), TABLES[kind].grouped_record)
    for group in TABLES[kind].groups:
        records[group.name] = values[group.name].transpose(0, 2, 1)
    return records.tobytes()


#: What ``struct`` calls the types of the groups.
_CODES = {"i8": "q", "f8": "d", "f4": "f"}


@lru_cache(maxsize=256)
def _form(kind: str, size: int) -> tuple[np.dtype[Any], str]:
    """Return how the columns of a block lie one after the other: for NumPy, and for ``struct``."""
    groups = TABLES[kind].groups
    code = "".join(f"{len(group.columns) * size}{_CODES[group.name]}" for group in groups)
    return np.dtype([(g.name, g.dtype, (len(g.columns), size)) for g in groups]), code


def _values(kind: str, size: int, columns: list[list[Any]]) -> Array:
    """Return the columns of blocks of ``size`` rows as one array, an element for each block.

    All at once: a call of NumPy for each column costs more than its values. ``struct`` takes half
    as long as NumPy, but knows no null.
    """
    form, code = _form(kind, size)
    blocks = len(columns) // _READERS[kind].width
    try:
        data = struct.pack("<" + code * blocks, *chain.from_iterable(columns))
    except struct.error:
        return _values_with_nulls(kind, np.empty(blocks, form), columns)
    return np.frombuffer(data, form)


def _values_with_nulls(kind: str, values: Array, columns: list[list[Any]]) -> Array:
    """Put ``columns`` into ``values``, with the mark of a missing value in place of each None."""
    width, first = _READERS[kind].width, 0
    for group in TABLES[kind].groups:
        last = first + len(group.columns)
        of_group = (
            c
            for start in range(0, len(columns), width)
            for c in columns[start + first : start + last]
        )
        flat = samples.as_array(group.dtype, [*chain.from_iterable(of_group)])
        values[group.name] = flat.reshape(values[group.name].shape)
        first = last
    return values


# --- From the records of many batches to rows ----------------------------------------------------


@dataclass
class Gathered:
    """The rows of many batches by kind, with the time at which each was received."""

    rows: dict[str, Rows] = field(default_factory=dict)
    received_at: dict[str, Array] = field(default_factory=dict)
    #: rows of things that are no longer there
    dropped: int = 0


@dataclass(frozen=True)
class Directory:
    """The ids of the things that records name: known ids by kind, and ids of names."""

    known_ids: dict[str, Array]
    job_ids: dict[str, int]
    mount_ids: dict[Mount, int]


@dataclass(frozen=True)
class Part:
    """Rows of one kind, as ``table.record`` has them, each with the time of its receipt."""

    records: Array
    received_at: Array

    @classmethod
    def joined(cls, parts: Sequence[Part]) -> Part:
        """Return parts one after the other."""
        if len(parts) == 1:  # as is the rule: a round's batches are nearly all of one form
            return parts[0]
        # As bytes: field by field takes ten times as long.
        raw = np.concatenate([part.records.view(np.uint8) for part in parts])
        received_at = np.concatenate([part.received_at for part in parts])
        return cls(raw.view(parts[0].records.dtype), received_at)


def gather(
    found: list[tuple[Packed, float]],
    directory: Directory,
    judged: Mapping[str, Part] = MappingProxyType({}),
) -> Gathered:
    """Return the rows of ``found``, each given with the time at which it was received, and those
    that were ``judged``, by kind.

    What was removed from the inventory after the web process saw it is left out and counted.
    """
    gathered = Gathered()
    for kind, table in TABLES.items():
        parts = [each for each in (_part(kind, found, directory), judged.get(kind)) if each]
        if not parts:
            continue
        part = Part.joined(parts)
        records, received_at = part.records, part.received_at
        there = _still_there(kind, table, records, directory)
        if not there.all():
            gathered.dropped += int(np.count_nonzero(~there))
            records, received_at = records[there], received_at[there]
        if len(records):
            gathered.rows[kind] = Rows.of_records(table, records)
            gathered.received_at[kind] = received_at
    return gathered


def _part(kind: str, found: list[tuple[Packed, float]], directory: Directory) -> Part | None:
    parts = [(p, p.records[kind], at) for p, at in found if kind in p.records]
    if not parts:
        return None
    table = TABLES[kind]
    records = np.frombuffer(bytearray().join(data for _, data, _ in parts), table.record)
    sizes = [len(data) // table.record.itemsize for _, data, _ in parts]
    packed = [p for p, _, _ in parts]
    if "job_id" in (table.record.names or ()):
        _resolve(records["job_id"], sizes, [p.jobs for p in packed], directory.job_ids)
    if "mount_id" in (table.record.names or ()):
        _resolve(records["mount_id"], sizes, [p.mounts for p in packed], directory.mount_ids)
    return Part(records, np.repeat([at for _, _, at in parts], sizes))


def _resolve(
    places: Array, sizes: list[int], named: list[list[_Thing]], ids: dict[_Thing, int]
) -> None:
    """Put ids in the places of ``places``: batch *i* has ``sizes[i]`` of them in ``named[i]``."""
    lengths = [len(things) for things in named]
    if not any(lengths):
        return
    all_ids = np.array([ids.get(thing, NULL_INT) for things in named for thing in things])
    firsts = np.repeat(np.cumsum([0, *lengths[:-1]]), sizes)
    is_given = places != NULL_INT
    places[is_given] = all_ids[places[is_given] + firsts[is_given]]


def _still_there(kind: str, table: Table, records: Array, directory: Directory) -> Array:
    keys = records[table.key]
    if kind in directory.known_ids:
        return np.isin(keys, directory.known_ids[kind])
    there: Array = keys != NULL_INT
    return there


def job_names(found: Iterable[Packed]) -> set[str]:
    """Return the names of all jobs that the batches mention."""
    return {
        name
        for packed in found
        for named in (packed.jobs, *(each.jobs for each in packed.unjudged))
        for name in named
    }


def mounts(found: Iterable[Packed]) -> set[Mount]:
    """Return all mounts that the batches mention."""
    return {mount for packed in found for mount in packed.mounts}
