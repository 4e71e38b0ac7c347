"""Between which racks the mix of jobs is kept alike: the arms of a rollout that soaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from policies.rollouts.machine import RolloutState
from policies.rollouts.models import RolloutRun

__all__ = ["ArmRacks", "soaking_arms"]


class ArmRacks(NamedTuple):
    """The racks of both arms, by their paths."""

    changed: Sequence[str]
    control: Sequence[str]


def soaking_arms() -> ArmRacks | None:
    """Return the arms of the rollout that has soaked the longest; None: there is none. One query.

    Of several at once only that one has its mix kept: one job cannot stand on arms of two.
    """
    rows = RolloutRun.objects.filter(state=RolloutState.SOAKING).exclude(control=[])
    first = rows.order_by("soaking_since", "id").values_list("racks", "control").first()
    if first is None:
        return None
    steps, control = first
    return ArmRacks([path for racks in steps for path in racks], control)
