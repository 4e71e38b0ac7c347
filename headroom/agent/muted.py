"""Links that the server does not know, and is not asked about again for a while."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable

from headroom.agent.batches import chosen
from headroom.contracts import Columns, FieldError, LinkColumns, TelemetryBatch

__all__ = ["MutedLinks"]

logger = logging.getLogger(__name__)

#: How long a link is left out, s: once it is in the inventory, its readings come within this time.
_MUTED_S = 300.0

_FIELD = re.compile(r"links\.link\[(\d+)\]")


class MutedLinks:
    """Ports are found, not asked for, so the inventory need not have all of them.

    A batch with a link that the server does not know would be taken apart there row by row. So the
    link is left out, and tried again every few minutes.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[str, float] = {}

    def learn(self, batch: TelemetryBatch, refused: Iterable[FieldError]) -> bool:
        """Note the links among ``refused``, all of ``batch``; return whether there was one."""
        named = [_link_of(batch, error) for error in refused if error.code == "unknown_link"]
        found = {name for name in named if name is not None}
        for name in found:
            if name not in self._until:
                logger.warning(
                    "link is not in the inventory and left out",
                    extra={"link": name, "retry_s": _MUTED_S},
                )
            self._until[name] = self._monotonic() + _MUTED_S
        return bool(found)

    def filter(self, batch: TelemetryBatch) -> TelemetryBatch:
        """Return ``batch`` without the rows of muted links."""
        now = self._monotonic()
        muted = {name for name, until in self._until.items() if now < until}
        if batch.links is None or muted.isdisjoint(batch.links.link):
            return batch

        def choose(_path: str, block: Columns) -> range | list[int]:
            if not isinstance(block, LinkColumns):
                return range(len(block))
            return [row for row, name in enumerate(block.link) if name not in muted]

        return chosen(batch, choose)


def _link_of(batch: TelemetryBatch, error: FieldError) -> str | None:
    found = _FIELD.fullmatch(error.field)
    rows = batch.links.link if batch.links is not None else []
    return rows[int(found[1])] if found and int(found[1]) < len(rows) else None
