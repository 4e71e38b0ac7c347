"""Heat of GPUs as a limit: the power at which each settles some degrees below its slowdown.

The law is that of headroom (:func:`policies.headroom.thermal.settles_at_w`). What it needs, the
air that a GPU gets, nobody reads: a blocked inlet warms it, and with a failed fan it looks warmer.
So it is what a temperature shows beyond what power of late explains. A fit may be old or missing;
what it gets wrong is in that air, too, at the power that is drawn.

Temperatures come in whole degrees and caps take effect late, so the air is smoothed: warmer counts
soon, cooler later, and less the less is drawn, since what rests shows little of what it would be
under load. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from physics.thermal import time_constant_s
from policies.headroom import thermal
from policies.headroom.columns import Floats
from policies.headroom.evaluate import Headroom

__all__ = ["MARGIN_C", "Warmth", "limited_by_heat"]

#: So far below its slowdown a GPU is held: further than where rules speak of heat, so that they
#: find nothing to do where caps hold.
MARGIN_C = 5.0
#: Further below its slowdown than this no GPU is held back. A part of what more power comes to
#: shows within seconds, sooner than the law has it, and looks like warmer air.
FAR_C = 15.0
#: Warmer air counts by 63 % after so long, cooler air after so long, s.
WARMS_IN_S, COOLS_IN_S = 10.0, 60.0


@dataclass(frozen=True, eq=False)
class Warmth:
    """What one round leaves to the next, aligned with GPUs; NaN where no temperature was read.

    ``drawn_w`` is what was drawn of late, weighed as heat remembers it; ``ambient_c`` the air that
    explains what else the temperature showed. Lost, it begins with the warmer of the air that
    headroom takes and the one that explains the temperature at the power that is drawn now.
    """

    at: float = -np.inf
    drawn_w: Floats = field(default_factory=lambda: np.zeros(0))
    ambient_c: Floats = field(default_factory=lambda: np.zeros(0))


def limited_by_heat(headroom: Headroom, before: Warmth) -> tuple[Floats, Warmth]:
    """Return what each GPU may draw by its heat, W, and what the next round goes on with.

    inf where no temperature is read: what is silent is not held by what it was.
    """
    parts, seen, load_w = headroom.parts, headroom.seen, headroom.summary.gpus.load_w
    heat, resistance = headroom.gpu_heat, parts.resistance_c_per_w
    # Of core and memory what is closer to its own slowdown.
    temp_c = np.where(seen.read, parts.limit_c - np.fmin(heat.margin_c, heat.mem_margin_c), np.nan)
    ambient_c = np.fmax(parts.ambient_c, temp_c - load_w * resistance)
    drawn_w = (temp_c - ambient_c) / resistance
    if len(before.drawn_w) == len(load_w):
        elapsed_s = max(headroom.at - before.at, 0.0)
        remembers_s = time_constant_s(
            resistance_c_per_w=resistance, capacitance_j_per_c=parts.capacitance_j_per_c
        )
        kept = np.exp(-elapsed_s / remembers_s)
        noted_w = load_w + (before.drawn_w - load_w) * kept
        shown_c = temp_c - noted_w * resistance
        changes_s = np.where(shown_c > before.ambient_c, WARMS_IN_S, COOLS_IN_S)
        kept = np.exp(-elapsed_s * _share(load_w, _may_draw_w(headroom, before)) / changes_s)
        known_c = shown_c + (before.ambient_c - shown_c) * kept
        is_known = ~np.isnan(known_c)
        drawn_w = np.where(is_known, noted_w, drawn_w)
        ambient_c = np.where(is_known, known_c, ambient_c)
    is_read = ~np.isnan(temp_c)
    now = Warmth(
        headroom.at, np.where(is_read, drawn_w, np.nan), np.where(is_read, ambient_c, np.nan)
    )
    may_draw_w = _may_draw_w(headroom, now)
    # What would bring it there from where it is.
    far_w = load_w + (parts.limit_c - FAR_C - temp_c) / resistance
    return np.fmax(may_draw_w, far_w), now


def _may_draw_w(headroom: Headroom, warmth: Warmth) -> Floats:
    parts, known = headroom.parts, ~np.isnan(warmth.ambient_c)
    may_draw_w = thermal.settles_at_w(
        limit_c=parts.limit_c,
        ambient_c=np.where(known, warmth.ambient_c, 0.0),
        resistance_c_per_w=parts.resistance_c_per_w,
        margin_c=MARGIN_C,
    )
    return np.where(known, may_draw_w, np.inf)


def _share(load_w: Floats, may_draw_w: Floats) -> Floats:
    """Return the share of what each GPU may draw that it does draw, at most 1."""
    return np.minimum(load_w / np.maximum(may_draw_w, 1.0), 1.0)
