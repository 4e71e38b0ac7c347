"""What the server does not know, and is not asked about again for a while."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headroom.agent.batches import chosen
from headroom.contracts import Columns, FieldError, TelemetryBatch, blocks

__all__ = ["Muted"]

logger = logging.getLogger(__name__)

#: How long something is left out, s: once it is in the inventory, its readings come within this.
_MUTED_S = 300.0

#: The field that names things, by the code that says that one is not known.
_NAMED_BY: Mapping[str, str] = {
    "unknown_link": "link",
    "unknown_gpu": "gpu",
    "unknown_meter": "meter",
}
_FIELD = re.compile(r"(.+)\.(link|gpu|meter)\[(\d+)\]")

#: Kind, node ("" where it is on none) and name or index.
_Thing: TypeAlias = tuple[str, str, str | int]


class Muted:
    """Ports, and GPUs of exporters, are found, so the inventory need not have all of them.

    A batch with one that the server does not know would be taken apart there row by row, and its
    rows counted as refused, time after time. So it is named once, left out, and tried again every
    few minutes.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[_Thing, float] = {}

    def learn(self, batch: TelemetryBatch, refused: Iterable[FieldError]) -> bool:
        """Note unknown things in ``refused``, all of ``batch``; return whether there was one."""
        named = dict(_named(batch))
        found = {thing for error in refused if (thing := _thing_of(named, error)) is not None}
        for thing in found:
            if thing not in self._until:
                kind, node, name = thing
                extra = {"kind": kind, "node": node, "thing": name, "retry_s": _MUTED_S}
                logger.warning("not in the inventory and left out", extra=extra)
            self._until[thing] = self._monotonic() + _MUTED_S
        return bool(found)

    def filter(self, batch: TelemetryBatch) -> TelemetryBatch:
        """Return ``batch`` without the rows of what is muted."""
        now = self._monotonic()
        muted = {thing for thing, until in self._until.items() if now < until}
        named = dict(_named(batch))
        if not muted or not any(muted.intersection(things) for things in named.values()):
            return batch

        def choose(path: str, block: Columns) -> range | list[int]:
            things = named.get(path)
            if things is None:
                return range(len(block))
            return [row for row, thing in enumerate(things) if thing not in muted]

        return chosen(batch, choose)


def _named(batch: TelemetryBatch) -> Iterable[tuple[str, list[_Thing]]]:
    """Yield the path of each block whose rows name things, and the things."""
    for path, block in blocks(batch):
        place, _, kind = path.rpartition(".")
        field = {"gpus": "gpu", "links": "link", "meters": "meter"}.get(kind)
        if field is None:
            continue
        node = batch.nodes[int(place[len("nodes[") : -1])].node if place else ""
        yield path, [(field, node, name) for name in getattr(block, field)]


def _thing_of(named: Mapping[str, list[_Thing]], error: FieldError) -> _Thing | None:
    found = _FIELD.fullmatch(error.field)
    if found is None or _NAMED_BY.get(error.code) != found[2]:
        return None
    things = named.get(found[1], [])
    return things[int(found[3])] if int(found[3]) < len(things) else None
