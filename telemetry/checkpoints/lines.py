"""A report on its way from the web process to the writer."""

from __future__ import annotations

import msgspec

from headroom.contracts import CheckpointReport

__all__ = ["CheckpointLine"]


class CheckpointLine(msgspec.Struct, array_like=True, frozen=True):
    """A report, with the id of the site where the store is."""

    site_id: int
    report: CheckpointReport
