"""The state of a version on its scopes, as it is kept between evaluations: only those under way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from policies.rules.engine import RuleState
from policies.rules.machine import Phase, Phases

#: By name of the scope: phase, since, fired at, clear since; Unix s, null where there is none.
Kept: TypeAlias = dict[str, list[Any]]


def packed(state: RuleState) -> Kept:
    """Return the scopes on which something is under way, as JSON can have them."""
    return {
        name: [int(phase), *(None if math.isnan(t) else t for t in times)]
        for name, phase, *times in state.busy()
    }


def unpacked(kept: Mapping[str, list[Any]], at: float) -> RuleState:
    """Return the state that :func:`packed` has written. Its rows are those of ``kept``."""
    rows = list(kept.values())
    times = np.array([row[1:] for row in rows], dtype=np.float64).reshape(len(rows), 3)
    return RuleState(
        np.array(list(kept), dtype=object),
        Phases(np.array([row[0] for row in rows], dtype=np.int8), *times.T),
        at,
    )


def handed_over(mine: Kept, theirs: Kept, *, counted: bool) -> Kept:
    """Return the state with which a version starts when it takes over from another.

    What the other fires on goes on firing: nobody is told twice. What the version itself has
    watched goes on as well, but what it has "fired" on while it did not count (``counted`` is
    false) is to fire now, as soon as it is seen to hold.
    """
    own = mine if counted else {name: _to_fire(row) for name, row in mine.items()}
    firing = {name: row for name, row in theirs.items() if row[0] >= Phase.FIRING}
    return {**theirs, **own, **firing}


def _to_fire(row: list[Any]) -> list[Any]:
    return [int(Phase.PENDING), row[1], None, None]
