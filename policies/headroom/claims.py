"""Claims that budgets would be exceeded: when, how sure, and held still once they are said.

A forecast claims that a budget would be exceeded when the lower end of its band passes it within
the hour: from when the upper end does, until the lower end does. A claim is said after it held in
two updates in turn. Then what is said stays as it is, until forecasts no longer agree with it for
some updates, or until it is resolved: it came true, it did not, or it became impossible. One that
did not come true costs the budget an hour of silence. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from policies.headroom.columns import Bools, Floats
from policies.headroom.outlook import AHEAD, UPDATE_S, Forecast, Record

__all__ = ["Claims", "Crossing", "crossing", "said"]

#: Updates in turn: until a claim is said, until one that no longer agrees is moved, and until one
#: that nothing speaks for any more is taken back.
_SAID_AFTER, _MOVED_AFTER, _WITHDRAWN_AFTER = 2, 3, 5
#: After a claim that did not come true nothing is claimed for so many updates.
_QUIET = 60
#: Times are said in steps of so many updates.
_STEP = 5


@dataclass(frozen=True, eq=False)
class Crossing:
    """The time from which and up to which budgets would be passed, in updates from now; NaN: no.

    ``sure`` is the share of loads that lately fell into the band that says so.
    """

    from_: Floats
    upto: Floats
    sure: Floats


def crossing(record: Record, made: Forecast, now_w: Floats, budget_w: Floats) -> Crossing:
    """Return when loads that are ``now_w`` would pass their budgets, W.

    NaN where one is passed already, where it is not sure enough, and where the record says that the
    forecast that says so is no better than "as now".
    """
    from_ = _passes(np.vstack([now_w, made.high_w]), budget_w)
    upto = _passes(np.vstack([now_w, made.low_w]), budget_w)
    place = np.searchsorted(np.array(AHEAD), np.nan_to_num(upto))[None]
    place = np.minimum(place, len(AHEAD) - 1)
    trusted = np.take_along_axis(made.shown, place, axis=0)[0]
    good = trusted & ~np.isnan(upto) & (now_w <= budget_w)
    sure = np.take_along_axis(record.covered, place, axis=0)[0]
    return Crossing(*(np.where(good, each, np.nan) for each in (from_, upto, sure)))


def _passes(path_w: Floats, budget_w: Floats) -> Floats:
    """Return when paths (now and horizons, budgets) pass their budgets, in updates; NaN: never.

    Between horizons a path is straight.
    """
    times = np.array([0.0, *AHEAD])
    over = path_w > budget_w
    after = np.maximum(over.argmax(axis=0), 1)
    before_w, after_w = (
        np.take_along_axis(path_w, place[None], axis=0)[0] for place in (after - 1, after)
    )
    rise_w = after_w - before_w
    share = np.divide(budget_w - before_w, rise_w, out=np.zeros_like(rise_w), where=rise_w > 0)
    at = times[after - 1] + np.clip(share, 0.0, 1.0) * (times[after] - times[after - 1])
    return np.where(over.any(axis=0), np.where(over[0], 0.0, at), np.nan)


@dataclass(frozen=True, eq=False)
class Claims:
    """What is claimed of some budgets, by row; NaN: nothing.

    ``from_`` and ``upto`` are the times that are said, Unix s, ``sure`` as of then. ``agreed``
    counts updates in turn in which forecasts claimed something, ``differed`` those that disagreed
    with what is said. ``made``, ``came_true`` and ``prevented`` count claims: one is prevented that
    limits in force have made impossible, or that lost its readings.
    """

    from_: Floats
    upto: Floats
    sure: Floats
    agreed: Floats
    differed: Floats
    quiet_until: Floats
    made: Floats
    came_true: Floats
    prevented: Floats

    @staticmethod
    def none(budgets: int) -> Claims:
        """Nothing is claimed, and nothing was."""
        nothing = [np.full(budgets, np.nan) for _ in range(3)]
        return Claims(*nothing, *(np.zeros(budgets) for _ in range(6)))

    def packed(self) -> NDArray[np.float64]:
        """Return all of it as one array: (numbers, budgets)."""
        return np.stack([getattr(self, each.name) for each in fields(self)])

    @staticmethod
    def unpacked(data: NDArray[np.float64]) -> Claims:
        """Return the claims that were :meth:`packed`. Raises ValueError where they are none."""
        if data.ndim != 2 or len(data) != len(fields(Claims)):
            raise ValueError(f"claims have {len(fields(Claims))} numbers for each budget")
        return Claims(*data.copy())

    @property
    def standing(self) -> Bools:
        """Of which budgets something is claimed."""
        return ~np.isnan(self.upto)


def said(
    before: Claims,
    found: Crossing,
    *,
    now: float,
    over: Bools,
    possible: Bools,
    update_s: float = UPDATE_S,
) -> Claims:
    """Return what is claimed after an update at ``now`` (Unix s), given what forecasts say.

    ``over``: budgets that are exceeded now. ``possible``: those that can be exceeded under what is
    enforced, and whose loads are read.
    """
    step_s = _STEP * update_s
    from_ = np.floor((now + found.from_ * update_s) / step_s) * step_s
    upto = np.ceil((now + found.upto * update_s) / step_s) * step_s
    claims = ~np.isnan(upto) & possible & ~over
    standing = before.standing
    came_true = standing & over & (now >= before.from_) & (now <= before.upto)
    prevented = standing & ~over & ~possible
    agrees = claims & (from_ <= before.upto) & (upto >= before.from_)
    agreed = np.where(claims, before.agreed + 1.0, 0.0)
    differed = np.where(standing & ~agrees, before.differed + 1.0, 0.0)
    moved = claims & (differed >= _MOVED_AFTER)
    failed = standing & ~prevented & ~came_true
    failed &= over | (now > before.upto) | (~claims & (differed >= _WITHDRAWN_AFTER)) | moved
    quiet_until = np.where(failed, now + _QUIET * update_s, before.quiet_until)
    stays = standing & ~came_true & ~prevented & ~failed
    new = claims & ~standing & (agreed >= _SAID_AFTER) & (now >= quiet_until)

    def chosen(fresh: Floats, kept: Floats) -> Floats:
        return np.where(new, fresh, np.where(stays, kept, np.nan))

    return Claims(
        from_=chosen(np.maximum(from_, now), before.from_),
        upto=chosen(upto, before.upto),
        sure=chosen(found.sure, before.sure),
        agreed=agreed,
        differed=np.where(stays, differed, 0.0),
        quiet_until=quiet_until,
        made=before.made + new,
        came_true=before.came_true + came_true,
        prevented=before.prevented + prevented,
    )
