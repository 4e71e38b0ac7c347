"""What holds a limit that somebody asks for: caps, pauses, and what peaks leave. Pure.

Of what is asked counts what those that agreed to nothing draw together (:mod:`.together`). Where
even that is not enough and they are slowed, their peaks are at their caps and come together: then
nothing is left over, and the sum of caps counts as everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

from policies.controller.control import Budgets, Controlled, Memory, Plant, Tuning, Units
from policies.controller.pausing import Paused, held_with_pauses
from policies.controller.together import Together, slowed_together, with_peaks_apart
from policies.headroom.columns import Bools, Floats

__all__ = ["held_as_asked"]


def held_as_asked(
    plant: Plant,
    units: Units,
    budgets: Budgets,
    memory: Memory,
    before: Paused,
    *,
    together: Together,
    asked: Bools,
    now: float,
    tuning: Tuning,
    may_pause: Mapping[int, float],
    rest_w: Floats,
    is_in_time: bool,
) -> tuple[Controlled, Paused]:
    """Return the caps to set now, and what is to stand still.

    ``asked`` says of each budget whether somebody asks for it; all else as in
    :func:`~.pausing.held_with_pauses`.
    """

    def held(which: Bools, stands: Paused) -> tuple[Controlled, Paused]:
        return held_with_pauses(
            plant, units, with_peaks_apart(budgets, together, which), memory, stands,
            now=now, tuning=tuning, may_pause=may_pause, rest_w=rest_w, is_in_time=is_in_time,
        )  # fmt: skip

    found, paused = held(asked, before)
    slowed = asked & slowed_together(plant, units, budgets, found)
    if slowed.any():
        found, _ = held(asked & ~slowed, paused)
    return found, paused
