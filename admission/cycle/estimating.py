"""Estimates of when phases begin, made each minute beside the cycles.

To play a long queue on many times takes seconds, and a cycle must not wait for that. What is made
here the cycles show, less the time that has passed since.
"""

from __future__ import annotations

from datetime import UTC, datetime

from admission.core.cycle.decide import decide
from admission.core.cycle.estimates import estimates
from admission.core.cycle.never import Hopeless
from admission.cycle import live
from admission.learned import forecasts
from admission.queue import queue_status, starts
from fleet.locks import only_one

__all__ = ["estimate_once"]

_LOCK = 0x45535449
#: The last cycle says who waits now if it is no older, s.
_NOW_S = 10.0

_hopeless = Hopeless()


def estimate_once(now: float) -> int | None:
    """Estimate the starts of all that wait at ``now`` (Unix s); return of how many.

    None: another process is at it, or the inventory has changed meanwhile.
    """
    with only_one(_LOCK) as mine:
        if not mine:
            return None
        if _nobody_waits(now):
            starts.publish({}, now)
            return 0
        try:
            inputs = live.read_input(now)
        except live.InventoryChanged:  # the next one sees one inventory
            return None
        decisions = decide(inputs.snapshot)
        made = estimates(
            decisions,
            forecasts.past_runs(),
            forecasts.calibration_at(now),
            never=_hopeless.look(decisions),
        )
        rows = {inputs.rows[key].id: each for key, each in made.items()}
        forecasts.note(rows, datetime.fromtimestamp(now, UTC))
        starts.publish(made, now, waiting=decisions.waiting)
        return len(made)


def _nobody_waits(now: float) -> bool:
    """Say whether the last cycle left nobody waiting: then nothing has to be read and decided."""
    last = queue_status.read()
    return last is not None and now - last.at < _NOW_S and not (last.waiting or last.failed)
