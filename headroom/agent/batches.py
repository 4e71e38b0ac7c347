"""Operations on a batch that waits: cut it in two, thin it, leave some of its rows out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from headroom.contracts import Columns, NodeReport, TelemetryBatch, XidColumns, blocks, row_count

__all__ = ["Chooser", "chosen", "halved", "thinned"]

#: The field that names the thing that a row is about. A block without one is about its node.
_KEYS = ("gpu", "mount", "link", "meter", "job")

#: Says which rows of a block stay. It is given the block's path in the batch.
Chooser = Callable[[str, Columns], Sequence[int]]


def chosen(batch: TelemetryBatch, choose: Chooser) -> TelemetryBatch:
    """Return ``batch`` with the rows that ``choose`` names. Blocks without rows are left out."""
    kept = {path: _rows(block, choose(path, block)) for path, block in blocks(batch)}
    reports = []
    for i, report in enumerate(batch.nodes):
        found = {name: kept.get(f"nodes[{i}].{name}") for name in NodeReport.__struct_fields__[1:]}
        if any(block is not None for block in found.values()):
            reports.append(NodeReport(node=report.node, **found))
    return msgspec.structs.replace(
        batch,
        nodes=reports,
        links=kept.get("links"),
        meters=kept.get("meters"),
        jobs=kept.get("jobs"),
    )


def thinned(batch: TelemetryBatch) -> TelemetryBatch:
    """Return ``batch`` with every second reading of each thing.

    The first of each stays, and so does what tells of an event.
    """
    return chosen(batch, lambda _path, block: _every_second(block))


def halved(batch: TelemetryBatch) -> tuple[TelemetryBatch, TelemetryBatch] | None:
    """Return the first and the second half of the rows; None where there is but one.

    What is no row (reports of limits, checkpoints and versions) stays with the first.
    """
    rows = row_count(batch)
    if rows < 2:
        return None
    firsts: dict[str, int] = {}
    left = rows // 2
    for path, block in blocks(batch):
        firsts[path] = min(len(block), left)
        left -= firsts[path]
    first = chosen(batch, lambda path, _block: range(firsts[path]))
    second = chosen(batch, lambda path, block: range(firsts[path], len(block)))
    return first, msgspec.structs.replace(second, limits=[], checkpoints=[], versions=[])


def _every_second(block: Columns) -> Sequence[int]:
    if isinstance(block, XidColumns):
        return range(len(block))
    things = next((getattr(block, key) for key in _KEYS if hasattr(block, key)), None)
    # A GPU's row with an Xid is no reading like the others.
    events: Sequence[Any] = getattr(block, "xid", None) or [None] * len(block)
    seen: Counter[Any] = Counter()
    kept = []
    for row in range(len(block)):
        thing = None if things is None else things[row]
        if seen[thing] % 2 == 0 or events[row] is not None:
            kept.append(row)
        seen[thing] += 1
    return kept


def _rows(block: Columns, rows: Collection[int]) -> Any:
    if not rows:
        return None
    columns = {
        name: None if values is None else [values[row] for row in rows]
        for name, values in msgspec.structs.asdict(block).items()
    }
    kind: Any = type(block)
    return kind(**columns)
