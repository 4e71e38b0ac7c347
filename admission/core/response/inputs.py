"""What is known of a job's declared inputs at sites, and what follows for its moves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

__all__ = ["InputsSeen", "KnownInputs", "basis", "differ_at"]


@dataclass(frozen=True)
class InputsSeen:
    """What machines of a site found of inputs when a command was last to start with them there.

    ``seen_at`` is Unix s; ``why`` is what differed, and empty where all were as declared.
    """

    seen_at: float
    why: str = ""


#: By site. Of other sites nothing is known, and what is declared counts.
KnownInputs: TypeAlias = Mapping[str, InputsSeen]


def differ_at(known: KnownInputs) -> frozenset[str]:
    """Return the sites at which inputs are known to differ from what is declared."""
    return frozenset(site for site, seen in known.items() if seen.why)


def basis(known: KnownInputs, home: str) -> str:
    """Return on what it rests that a job's inputs are at another site, in words."""
    at = {site: seen.seen_at for site, seen in known.items() if site != home and not seen.why}
    said = "that its inputs are there is declared, not verified"
    if at:
        site = max(at, key=lambda each: at[each])
        since = datetime.fromtimestamp(at[site], UTC)
        said = f"its inputs were verified at {site}, {since:%F %T} UTC"
    wrong = sorted(differ_at(known) - {home})
    return f"{said}; they differ at {' and '.join(wrong)}" if wrong else said
