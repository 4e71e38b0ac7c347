"""How much less a site is to draw: by so many watts, by a share, or to so many watts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from policies.restrictions.kinds import HELD_BEFORE

__all__ = ["Ask", "BadAsk", "held_from"]


def held_from(announced_at: datetime, starts_at: datetime) -> datetime:
    """Return from when on jobs give way for what has to be met at ``starts_at``."""
    return max(announced_at, starts_at - HELD_BEFORE)


class BadAsk(ValueError):
    """What is asked cannot be meant. Says which field is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, kw_only=True)
class Ask:
    """How much less is asked for: one of the three is given."""

    #: W less than the baseline
    by_w: float | None = None
    #: at most so many W
    to_w: float | None = None
    #: less than the baseline by this share of it
    by_share: float | None = None

    def __post_init__(self) -> None:
        """Raises :class:`BadAsk`."""
        given = [name for name in ("by_w", "to_w", "by_share") if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadAsk("by_w", "give one of by_w, to_w and by_share")
        value, name = getattr(self, given[0]), given[0]
        if not math.isfinite(value) or value <= 0.0:
            raise BadAsk(name, f"{name} has to be above 0")
        if name == "by_share" and value >= 1.0:
            raise BadAsk(name, "by_share is a share of the baseline, above 0 and below 1")

    def target_w(self, baseline_w: float) -> float:
        """Return what may be drawn, W. Raises :class:`BadAsk` where nothing would be left."""
        if self.to_w is not None:
            return self.to_w
        if self.by_share is not None:
            return (1.0 - self.by_share) * baseline_w
        target_w = baseline_w - (self.by_w or 0.0)
        if target_w <= 0.0:
            raise BadAsk("by_w", f"the site draws {baseline_w:.0f} W: nothing would be left")
        return target_w
