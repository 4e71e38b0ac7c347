"""A report on its way from the web process to the writer."""

from __future__ import annotations

import msgspec

from headroom.contracts import VersionReport

__all__ = ["VersionLine"]


class VersionLine(msgspec.Struct, array_like=True, frozen=True):
    """A report, with its node's id in place of the name."""

    node_id: int
    report: VersionReport
