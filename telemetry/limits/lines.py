"""A report on its way from the web process to the writer."""

from __future__ import annotations

import msgspec

from headroom.contracts import LimitReport

__all__ = ["LimitLine"]


class LimitLine(msgspec.Struct, array_like=True, frozen=True):
    """A report, with its node's id in place of the name."""

    node_id: int
    report: LimitReport
