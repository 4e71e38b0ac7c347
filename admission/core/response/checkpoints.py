"""What is known of a job's checkpoints at sites, and what follows for its fallback. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

__all__ = ["Known", "KnownCheckpoint", "basis", "has_latest", "is_elsewhere"]


@dataclass(frozen=True, order=True)
class KnownCheckpoint:
    """The latest checkpoint of a run that counts at a site: of two the greater counts before.

    ``epoch`` is the start of the run that saved it, ``verified_at`` Unix s.
    """

    epoch: int
    step: int
    verified_at: float


#: By site; None: a store there was looked at, and none counts in it. Other sites are not known.
Known: TypeAlias = Mapping[str, KnownCheckpoint | None]


def is_elsewhere(known: Known, home: str) -> bool | None:
    """Say whether a checkpoint counts at another site; None: nobody has looked at any."""
    others = [found for site, found in known.items() if site != home]
    return any(found is not None for found in others) if others else None


def has_latest(known: Known, home: str) -> bool:
    """Say whether no other site is known to have a later checkpoint than ``home``."""
    mine = known.get(home)
    others = [found for site, found in known.items() if site != home and found is not None]
    return all(mine is not None and _place(mine) >= _place(found) for found in others)


def _place(found: KnownCheckpoint) -> tuple[int, int]:
    return found.epoch, found.step


def basis(known: Known, home: str) -> str:
    """Return on what it rests that a job has checkpoints elsewhere, in words."""
    at = {site: found for site, found in known.items() if site != home and found is not None}
    if not at:
        return "that its checkpoints are elsewhere is declared, not verified"
    site = max(at, key=lambda each: at[each])
    since = datetime.fromtimestamp(at[site].verified_at, UTC)
    return f"its checkpoint of step {at[site].step} is whole at {site}, verified {since:%F %T} UTC"
