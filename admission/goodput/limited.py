"""What pauses and limits on power took of the work of gangs, over any span of time."""

from __future__ import annotations

import numpy as np

from admission.core.account import Cause, GpuSpans, throttled
from admission.core.fleet_account import CAUSES, Gangs, gang_accounts
from admission.goodput import records
from admission.goodput.gathering import held_in, held_parts, parts_of
from admission.goodput.steps import times_us
from fleet.slicing import sliced
from fleet.tables import FleetArrays
from headroom.contracts import ThrottleCause
from policies.headroom.columns import Bools
from telemetry.spans import Span

__all__ = ["lost_to_limits_s"]

#: Whoever set the limit, and whether that was expected: the work is lost.
_TAKEN = [
    CAUSES.index(cause)
    for cause in (
        Cause.PAUSED,
        *(throttled(ThrottleCause.SW_POWER_CAP, expected=known) for known in (True, False)),
    )
]
_US = 1e6


def lost_to_limits_s(span: Span, fleet: FleetArrays, racks: Bools) -> float:
    """Return the work that gangs lost by pauses and at power limits, GPU·s. Three queries.

    By throttle events and directives that were applied. ``racks`` says of each rack whether it
    counts.
    """
    held = held_in(span)
    parts, ids = parts_of(fleet)
    part, gang = held_parts(held, sliced(fleet))
    here = racks[parts.scope[part]]
    part, gang = part[here], gang[here]
    begun, ended = (
        np.array([getattr(each, name) for each in held]) for name in ("dispatched", "ended")
    )
    gangs = Gangs(
        held=GpuSpans(**times_us(part, begun[gang], ended[gang])),
        gang=gang,
        spans=[records.pauses({each.pk: at for at, each in enumerate(held)}, span)],
        part_shares=records.throttle(ids, span, is_fleet=True),
    )
    found = gang_accounts(
        parts, gangs, start_us=round(span.start * _US), end_us=round(span.end * _US)
    )
    return float(found.us[:, _TAKEN].sum()) / _US
