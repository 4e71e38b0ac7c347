"""The good rows of a batch that the fast path refused: all but those at fault.

The fast way (one typed decode, one pass of checks) says only that something is wrong. This one goes
through the document value by value. It is slow, and runs for batches with errors alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from headroom.contracts import (
    MAX_ROWS,
    AgentStatus,
    BatchError,
    CheckpointReport,
    Columns,
    LimitReport,
    NodeReport,
    TelemetryBatch,
    VersionReport,
    check_block,
    check_shape,
    invalid_field,
    row_count,
)
from telemetry import checks
from telemetry.directory import AgentScope, KnownNode, KnownThing, Names
from telemetry.ingest.columns import element_types, part_types
from telemetry.ingest.refusals import Refusals, TimeLimits
from telemetry.rows import Mount

__all__ = ["NewNames", "Salvaged", "salvage"]

#: What a batch carries; the rest of its fields say whose it is and which.
_PARTS = frozenset(
    {"status", "nodes", "links", "meters", "jobs", "limits", "checkpoints", "versions"}
)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
#: Says what is wrong with row *i* of a block's columns, or None.
_RowCheck: TypeAlias = Callable[[dict[str, Any], int], BatchError | None]


class NewNames(Protocol):
    """Finds errors in names that the inventory does not have, and gives rows to the others."""

    def jobs(
        self, reported: Collection[str], named: Collection[str], newest_ts: float
    ) -> Mapping[str, BatchError]:
        """Return errors of jobs with reported progress, and of all that are named, up to a time."""

    def mounts(self, named: Collection[Mount]) -> Mapping[Mount, BatchError]:
        """Return errors of mounts."""


@dataclass(frozen=True)
class Salvaged:
    """A batch without its bad rows; None where no row is left."""

    batch: TelemetryBatch | None
    refusals: Refusals


def salvage(
    body: bytes,
    error: BatchError,
    *,
    is_json: bool,
    scope: AgentScope,
    names: Names,
    new_names: NewNames,
    limits: TimeLimits,
) -> Salvaged:
    """Return the good part of the batch in ``body``, which the fast path refused by ``error``.

    Raises :class:`BatchError` where the body cannot be read, what stands around its rows is wrong,
    or it speaks for another agent's things.
    """
    document = _parse(body, is_json, error)
    batch = _envelope(document, scope)
    if _rows_in(document) > MAX_ROWS:
        raise error
    work = _Salvage(scope, names, new_names, limits)
    work.fill(batch, document)
    has_reports = batch.limits or batch.checkpoints or batch.versions
    usable = bool(has_reports or row_count(batch))
    return Salvaged(batch if usable else None, work.refusals)


def _parse(body: bytes, is_json: bool, error: BatchError) -> dict[str, Any]:
    try:
        found = _parse_json(body) if is_json else msgspec.msgpack.decode(body)
    except (ValueError, RecursionError):
        raise error from None
    if not isinstance(found, dict):
        raise error
    return found


def _parse_json(body: bytes) -> Any:
    """Parse JSON, also that of writers who take NaN and Infinity for numbers."""
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError:
        found = json.loads(body.decode())
        # Half a surrogate is no text, and would fail later, where the batch is encoded.
        json.dumps(found, ensure_ascii=False).encode()
        return found


def _envelope(document: dict[str, Any], scope: AgentScope) -> TelemetryBatch:
    """Return the batch without any of its parts."""
    around = {name: value for name, value in document.items() if name not in _PARTS}
    try:
        batch = msgspec.convert(around, TelemetryBatch)
    except msgspec.ValidationError as exc:
        raise invalid_field(exc) from exc
    checks.check_agent(batch, scope)
    check_shape(batch)
    return batch


def _rows_in(document: dict[str, Any]) -> int:
    """Return how many rows the document has, as far as that can be told."""
    found = [document.get(name) for name in part_types(TelemetryBatch)]
    reports = document.get("nodes")
    for report in reports if isinstance(reports, list) else []:
        if isinstance(report, dict):
            found.extend(report.values())
    return sum(map(_rows_of, found))


def _rows_of(block: Any) -> int:
    ts = block.get("ts") if isinstance(block, dict) else None
    return len(ts) if isinstance(ts, list) else 0


def _reports(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the reports of a document that have a node's name, with it."""
    found = document.get("nodes")
    for report in found if isinstance(found, list) else []:
        if isinstance(report, dict) and _is_name(report.get("node")):
            yield report["node"], report


def _told_jobs(document: dict[str, Any]) -> Iterator[str]:
    """Yield the jobs whose checkpoints the document reports."""
    found = document.get("checkpoints")
    for report in found if isinstance(found, list) else []:
        if isinstance(report, dict) and _is_name(report.get("job")):
            yield report["job"]


def _texts(block: Any, *path: str) -> Iterator[str]:
    """Yield the names in the array that is found by going down ``path``."""
    for step in path:
        block = block.get(step) if isinstance(block, dict) else None
    yield from filter(_is_name, block if isinstance(block, list) else [])


def _times(document: dict[str, Any]) -> Iterator[float]:
    """Yield the times of the blocks that may bear a job's name, as far as they are numbers."""
    blocks = [document.get("jobs"), *(report.get("gpus") for _, report in _reports(document))]
    for block in blocks:
        found = block.get("ts") if isinstance(block, dict) else None
        times = found if isinstance(found, list) else []
        yield from (each for each in times if isinstance(each, float | int))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and "\x00" not in value


def _passes(columns: dict[str, Any], row: int) -> None:
    """Check nothing: some blocks have no errors by row but in their times."""


class _Salvage:
    """Goes through the parts of a document and keeps the good ones."""

    def __init__(
        self, scope: AgentScope, names: Names, new_names: NewNames, limits: TimeLimits
    ) -> None:
        self.refusals = Refusals()
        self._scope = scope
        self._names = names
        self._new_names = new_names
        self._limits = limits
        self._jobs: Mapping[str, BatchError] = {}
        self._mounts: Mapping[Mount, BatchError] = {}

    def fill(self, batch: TelemetryBatch, document: dict[str, Any]) -> None:
        """Put the good parts of ``document`` into ``batch``."""
        reported = {*_texts(document.get("jobs"), "job"), *_told_jobs(document)}
        labels = {
            name for _, report in _reports(document) for name in _texts(report, "gpus", "job")
        }
        newest_ts = max(_times(document), default=batch.sent_at)
        self._jobs = self._new_names.jobs(reported, reported | labels, newest_ts)
        self._mounts = self._new_names.mounts(set(self._mounts_in(document)))
        batch.status = self._convert("status", document.get("status"), AgentStatus, rows=0)
        batch.nodes = self._each("nodes", document, self._report)
        batch.limits = self._each("limits", document, self._limit)
        batch.checkpoints = self._each("checkpoints", document, self._checkpoint)
        batch.versions = self._each("versions", document, self._version)
        types = part_types(TelemetryBatch)
        for name, row_check in (
            ("links", self._thing_check("link", self._names.link)),
            ("meters", self._thing_check("meter", self._names.meter)),
            ("jobs", self._check_job),
        ):
            setattr(batch, name, self._block(name, document.get(name), types[name], row_check))

    def _convert(
        self, path: str, value: Any, wanted: type[_Struct], *, rows: int
    ) -> _Struct | None:
        """Return ``value`` as a ``wanted``; None where it is null, or is refused."""
        if value is None:
            return None
        try:
            return msgspec.convert(value, wanted)
        except msgspec.ValidationError as exc:
            self.refusals.add(invalid_field(exc, path), rows)
            return None

    def _each(
        self, name: str, document: dict[str, Any], take: Callable[[str, Any], _Struct | None]
    ) -> list[_Struct]:
        values = document.get(name, [])
        if not isinstance(values, list):
            self.refusals.add(_wrong_kind("array", values, name), rows=0)
            return []
        taken = (take(f"{name}[{i}]", value) for i, value in enumerate(values))
        return [each for each in taken if each is not None]

    def _limit(self, path: str, document: Any) -> LimitReport | None:
        report = self._convert(path, document, LimitReport, rows=1)
        if report is None:
            return None
        try:
            checks.known_node(path, report.node, self._scope, self._names)
        except checks.UnknownName as error:
            self.refusals.add(error, 1)
            return None
        return report

    def _version(self, path: str, document: Any) -> VersionReport | None:
        report = self._convert(path, document, VersionReport, rows=1)
        if report is None:
            return None
        wrong = self._limits.of_future(f"{path}.at", report.at)
        try:
            checks.known_node(path, report.node, self._scope, self._names)
        except checks.UnknownName as unknown:
            wrong = wrong or unknown
        if wrong is not None:
            self.refusals.add(wrong)
            return None
        return report

    def _checkpoint(self, path: str, document: Any) -> CheckpointReport | None:
        report = self._convert(path, document, CheckpointReport, rows=1)
        if report is None:
            return None
        error = self._jobs.get(report.job)
        wrong = checks.at(error, f"{path}.job") if error else self._limits.later(path, report)
        try:
            checks.known_store(path, report, self._scope, self._names)
        except checks.UnknownName as unknown:
            wrong = wrong or unknown
        if wrong is not None:
            self.refusals.add(wrong)
            return None
        return report

    def _report(self, path: str, document: Any) -> NodeReport | None:
        if not isinstance(document, dict):
            self.refusals.add(_wrong_kind("object", document, path), rows=0)
            return None
        types = part_types(NodeReport)
        rows = sum(_rows_of(document.get(name)) for name in types)
        around = {"node": document["node"]} if "node" in document else {}
        report = self._convert(path, around, NodeReport, rows=rows)
        if report is None:
            return None
        for name in document.keys() - types.keys() - {"node"}:
            message = f"Object contains unknown field `{str(name)[:100]}`"
            error = BatchError("invalid_field", message, field=path)
            self.refusals.add(error, _rows_of(document[name]))
        node = self._names.node(report.node)
        if node is None:
            self.refusals.add(checks.unknown("node", report.node, f"{path}.node"), rows)
            return None
        if not self._scope.holds(node_id=node.node_id, site_id=node.site_id):
            raise checks.foreign("node", report.node, f"{path}.node", self._scope)
        return self._blocks_of(path, report, node, document)

    def _blocks_of(
        self, path: str, report: NodeReport, node: KnownNode, document: dict[str, Any]
    ) -> NodeReport | None:
        def check_gpu(columns: dict[str, Any], row: int) -> BatchError | None:
            index = columns["gpu"][row]
            if index not in node.gpu_ids:
                return checks.unknown_gpu(report.node, index, f"{path}.gpus.gpu[{row}]")
            labels = columns.get("job")
            if labels and (error := self._jobs.get(labels[row])):
                # What it draws counts, whoever is said to have it.
                self.refusals.add(checks.at(error, f"{path}.gpus.job[{row}]"))
                labels[row] = None
            return None

        def check_mount(columns: dict[str, Any], row: int) -> BatchError | None:
            error = self._mounts.get(Mount(node.node_id, columns["mount"][row]))
            return error and checks.at(error, f"{path}.storage.mount[{row}]")

        row_checks = {"gpus": check_gpu, "storage": check_mount}
        left = False
        for name, wanted in part_types(NodeReport).items():
            row_check = row_checks.get(name, _passes)
            block = self._block(f"{path}.{name}", document.get(name), wanted, row_check)
            setattr(report, name, block)
            left = left or block is not None
        return report if left else None

    def _check_job(self, columns: dict[str, Any], row: int) -> BatchError | None:
        error = self._jobs.get(columns["job"][row])
        return None if error is None else checks.at(error, f"jobs.job[{row}]")

    def _mounts_in(self, document: dict[str, Any]) -> Iterator[Mount]:
        for name, report in _reports(document):
            node = self._names.node(name)
            if node is not None and self._scope.holds(node_id=node.node_id, site_id=node.site_id):
                yield from (
                    Mount(node.node_id, each) for each in _texts(report, "storage", "mount")
                )

    def _thing_check(self, kind: str, look_up: Callable[[str], KnownThing | None]) -> _RowCheck:
        """Return the check of a block whose field ``kind`` names things of the inventory."""

        def check(columns: dict[str, Any], row: int) -> BatchError | None:
            name, path = columns[kind][row], f"{kind}s.{kind}[{row}]"
            thing = look_up(name)
            if thing is None:
                return checks.unknown(kind, name, path)
            if not self._scope.holds(node_id=thing.node_id, site_id=thing.site_id):
                raise checks.foreign(kind, name, path, self._scope)
            return None

        return check

    def _block(self, path: str, document: Any, wanted: type[Columns], row_check: _RowCheck) -> Any:
        """Return the good rows of a block; None where there are none."""
        if document is None:
            return None
        try:
            _check_structure(path, document, wanted)
        except BatchError as error:
            self.refusals.add(error, _rows_of(document))
            return None
        bad: set[int] = set()
        columns = {
            name: self._column(f"{path}.{name}", document[name], element, bad)
            for name, element in element_types(wanted).items()
            if document.get(name) is not None
        }
        self._check_rows(path, columns, bad, row_check)
        good = [row for row in range(len(columns["ts"])) if row not in bad]
        if not good:
            return None
        return wanted(**{name: [values[row] for row in good] for name, values in columns.items()})

    def _column(self, path: str, values: list[Any], element: Any, bad: set[int]) -> list[Any]:
        """Return ``values`` as the contract's type; the rows of wrong ones come into ``bad``."""
        try:
            return msgspec.convert(values, list[element])
        except msgspec.ValidationError:
            return [self._element(path, i, value, element, bad) for i, value in enumerate(values)]

    def _element(self, path: str, row: int, value: Any, element: Any, bad: set[int]) -> Any:
        if row in bad:
            return None
        try:
            return msgspec.convert(value, element)
        except msgspec.ValidationError as exc:
            bad.add(row)
            self.refusals.add(invalid_field(exc, f"{path}[{row}]"))
            return None

    def _check_rows(
        self, path: str, columns: dict[str, Any], bad: set[int], row_check: _RowCheck
    ) -> None:
        for row, ts in enumerate(columns["ts"]):
            if row in bad:
                continue
            error = self._limits.refusal(f"{path}.ts[{row}]", ts) or row_check(columns, row)
            if error is not None:
                bad.add(row)
                self.refusals.add(error)


def _check_structure(path: str, document: Any, wanted: type[Columns]) -> None:
    """Raise where a block is not made of the contract's arrays, all of the same length."""
    emptied = document
    if isinstance(document, dict):
        emptied = {name: [] if isinstance(v, list) else v for name, v in document.items()}
    try:
        msgspec.convert(emptied, wanted)
    except msgspec.ValidationError as exc:
        raise invalid_field(exc, path) from exc
    check_block(path, wanted(**document))


def _wrong_kind(wanted: str, value: Any, path: str) -> BatchError:
    return BatchError(
        "invalid_field", f"Expected `{wanted}`, got `{type(value).__name__}`", field=path
    )
