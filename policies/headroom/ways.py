"""Ways out, each of them tried: caps on the GPUs of a scope, and other rows of racks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet.groups import above
from policies.headroom.binding import Token, quantity
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.evaluate import Headroom
from policies.headroom.row_capacity import RowCapacity, fits, sensible_cap, throttling_gpus
from policies.scopes import ScopeKind

#: Sizes of jobs are said in steps, W.
JOB_STEP_W = 100.0


def job_size(watts: float) -> str:
    """Return a size of a job as text, rounded down, so that a job of that size fits."""
    return quantity(JOB_STEP_W * np.floor(watts / JOB_STEP_W), "W")


@dataclass(frozen=True)
class Way:
    """A way out that was tried: ``cap`` (GPUs to so many W) or ``place`` (in another row)."""

    kind: str
    text: str
    cap_w: float | None = None
    row: str = ""
    #: what that row takes, W
    takes_w: float | None = None


@dataclass(frozen=True, eq=False)
class Under:
    """The GPUs whose power a scope carries, and by how much a W less of each relieves it."""

    headroom: Headroom
    token: Token
    kind: ScopeKind
    row: int
    gpus: Ints
    worth: Floats

    @staticmethod
    def of(headroom: Headroom, token: Token, kind: ScopeKind, row: int) -> Under:
        """Return the GPUs that hang on a scope, but for unread ones: nobody could cap them."""
        fleet = headroom.fleet
        share = _rack_shares(headroom, token, kind, row)
        node = fleet.gpus.node
        gpus = np.flatnonzero((share > 0)[fleet.nodes.rack][node] & headroom.summary.gpus.read)
        node = node[gpus]
        worth = (1.0 + headroom.host_share[node]) * share[fleet.nodes.rack[node]]
        return Under(headroom, token, kind, row, gpus, worth)

    def cap(self, left_w: float, wanted_w: Floats) -> Way | None:
        """Return the cap under which the scope is within its budget though GPUs draw ``wanted_w``.

        ``left_w`` is what it has left at today's load. None where no cap will do.
        """
        headroom, gpus = self.headroom, self.gpus
        if not len(gpus):
            return None
        load_w, wanted = headroom.summary.gpus.load_w[gpus], wanted_w[gpus]
        low, high = 0.0, float(wanted.max())
        for _ in range(40):
            middle = (low + high) / 2.0
            more_w = float(self.worth @ (np.minimum(wanted, middle) - load_w))
            low, high = (middle, high) if more_w <= left_w else (low, middle)
        cap_w = sensible_cap(low, float(headroom.summary.gpus.rated_w[gpus].max()))
        if cap_w is None:
            return None
        tried = headroom.summary.gpus.load_w.copy()
        tried[gpus] = np.minimum(wanted, cap_w)
        if self._left_w(headroom.what_if(tried)) < 0.0:
            return None
        return Way("cap", f"GPUs there are capped at {cap_w:.0f} W", cap_w=cap_w)

    def _left_w(self, headroom: Headroom) -> float:
        if self.token is Token.FEED_REDUNDANCY:
            return float(headroom.failover.headroom_w[self.row])
        if self.token is Token.COOLING:
            capacity_w = headroom.zone_capacity_w
            return float((capacity_w - headroom.zone_load_w)[self.row])
        return float(headroom.powers[self.kind].headroom_w[self.row])


def _rack_shares(headroom: Headroom, token: Token, kind: ScopeKind, row: int) -> Floats:
    """Return which share of each rack's load a scope carries."""
    fleet = headroom.fleet
    if kind is not ScopeKind.POWER_DOMAIN:
        wholes = {
            ScopeKind.RACK: np.arange(len(fleet.racks)),
            ScopeKind.ZONE: fleet.racks.zone,
            ScopeKind.SITE: fleet.racks.site,
        }
        return np.asarray(wholes[kind] == row, dtype=np.float64)
    on_a, on_b = (_hangs(headroom, feed, row) for feed in (fleet.racks.feed_a, fleet.racks.feed_b))
    both = (fleet.racks.feed_a >= 0) & (fleet.racks.feed_b >= 0)
    each = np.where(both, 0.5, 1.0)
    share: Floats = each * on_a + each * on_b
    if token is Token.FEED_REDUNDANCY:
        mate = int(fleet.domains.pair[row])
        moves = (on_a & _hangs(headroom, fleet.racks.feed_b, mate)) | (
            on_b & _hangs(headroom, fleet.racks.feed_a, mate)
        )
        share = share + 0.5 * (both & moves)
    return share


def _hangs(headroom: Headroom, feed: Ints, row: int) -> Bools:
    found: Bools = (above(headroom.fleet, feed) == row).any(axis=0)
    return found


def cap_of_row(room: RowCapacity, wanted_w: Floats, cap_w: float) -> Way | None:
    """Return a cap of a row's GPUs if, though they want ``wanted_w``, nothing is over its limit."""
    rated_w = float(room.headroom.summary.gpus.rated_w[room.gpus].max())
    cap = sensible_cap(cap_w, rated_w)
    if cap is None:
        return None
    tried = wanted_w.copy()
    tried[room.gpus] = np.minimum(wanted_w[room.gpus], cap)
    after = room.headroom.what_if(tried)
    if len(throttling_gpus(after, room.gpus)):
        return None
    return Way("cap", f"capped at {cap:.0f} W per GPU", cap_w=cap)


def best_rows(found: Sequence[RowCapacity]) -> list[RowCapacity]:
    """Return the two rows that take the largest jobs, each of them tried."""
    best: list[RowCapacity] = []
    for room in sorted(found, key=lambda each: -each.job_w):
        share = min(room.power_share, room.heat_share)
        if room.job_w < JOB_STEP_W or len(best) == 2:
            break
        if fits(room.headroom.what_if(room.gpu_w(share)), room.racks):
            best.append(room)
    return best


def elsewhere(best: Sequence[RowCapacity], room: RowCapacity, above_w: float) -> Way | None:
    """Return another row that takes larger jobs than ``above_w``."""
    other = next((each for each in best if each is not room), None)
    if other is None or other.job_w - above_w < JOB_STEP_W:
        return None
    text = f"placed in row {other.row}, which takes {job_size(other.job_w)}"
    return Way("place", text, row=other.row, takes_w=other.job_w)
