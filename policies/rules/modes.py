"""How far a version of a rule counts."""

from __future__ import annotations

import enum


class Mode(enum.StrEnum):
    """How far a version counts."""

    #: it records what it would have done, and does nothing
    SHADOW = "shadow"
    #: it counts on a share of the racks
    CANARY = "canary"
    #: it counts, but where a canary does
    ACTIVE = "active"
