"""Whether a rack may give off more heat than its kind of cooling carries from one rack. Pure.

Limits of kinds are those of the catalogue (``physics.hardware``): what vendors state, else what the
textbook does. A kind without a figure in either, such as immersion, is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from physics.errors import UnknownKeyError
from physics.hardware import CURRENT, TEXTBOOK

__all__ = ["Excess", "excess", "limit_w"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A rack that may give off ``heat_w``, of which its ``cooling`` carries ``limit_w``, W."""

    cooling: str
    heat_w: float
    limit_w: float

    @property
    def sentence(self) -> str:
        """What is too much of what, in words."""
        return (
            f"may give off {_kw(self.heat_w)}, and {self.cooling} cooling carries"
            f" {_kw(self.limit_w)} from a rack: {_kw(self.heat_w - self.limit_w)} too much;"
            f" lower its budget, spread its nodes, or cool it otherwise"
        )


def _kw(watts: float) -> str:
    return f"{watts / 1e3:,.1f} kW"


def limit_w(cooling: str) -> float | None:
    """Return the heat that a kind of cooling carries from one rack, W; None: nobody states it."""
    for profile in (CURRENT, TEXTBOOK):
        try:
            stated = profile.cooling_kind(cooling).rack_limit_w
        except UnknownKeyError:
            continue
        if stated is not None:
            return stated
    return None


def excess(cooling: str, *, rated_w: float, budget_w: float) -> Excess | None:
    """Return by how much a rack is too dense for its kind of cooling; None: it is not, or unknown.

    It gives off no more than its nodes are rated for in all, and no more than its budget, which is
    held.
    """
    heat_w, most_w = min(rated_w, budget_w), limit_w(cooling)
    if most_w is None or not heat_w > most_w:
        return None
    return Excess(cooling=cooling, heat_w=heat_w, limit_w=most_w)
