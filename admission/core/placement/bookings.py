"""Bookings: hosts that are kept for a project, or for maintenance, from one time to another. Pure.

A booking is an eligibility with bounds in time. A job whose walltime would run into one that is not
for it takes no host of it, from long before it begins; so its hosts are free when it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from admission.core.placement.topology import Bools, Ints
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Request
from policies.headroom.binding import balance
from policies.scopes import Scope

__all__ = ["SPARE_S", "Booking", "Bookings"]

#: Beyond its walltime: for a gang to come together, and to end once it is told to.
SPARE_S = 120.0


@dataclass(frozen=True)
class Booking:
    """Hosts that are kept from ``begin_at`` to ``end_at``, Unix s.

    ``project``: whose jobs may have them; empty: nobody's, it is maintenance. ``what``: in words.
    """

    begin_at: float
    end_at: float
    what: str
    project: str = ""
    scope: Scope | None = None


@dataclass(frozen=True, eq=False)
class Bookings:
    """Bookings that are not over, with the mask of their nodes each."""

    rows: tuple[Booking, ...] = ()
    nodes: tuple[Bools, ...] = ()
    _known: dict[tuple[str, float, float], tuple[int, ...]] = field(default_factory=dict)

    def closing(self, request: Request, now: float) -> tuple[int, ...]:
        """Return the places of those that a job which starts ``now`` would run into."""
        if not self.rows:
            return ()
        key = (request.project, request.walltime_s, now)
        found = self._known.get(key)
        if found is None:
            end_at = now + request.walltime_s + SPARE_S
            found = self._known[key] = tuple(
                place
                for place, each in enumerate(self.rows)
                if each.begin_at < end_at and each.end_at > now and each.project != request.project
            )
        return found

    def taken(self, places: Iterable[int]) -> Bools:
        """Return the nodes of some bookings: at least one."""
        return np.asarray(np.logical_or.reduce([self.nodes[place] for place in places]))

    def over_by(self, request: Request, now: float) -> set[float]:
        """Return by when a job would have to be over, Unix s, to run into fewer."""
        begins = {self.rows[place].begin_at for place in self.closing(request, now)}
        return {at - SPARE_S for at in begins if at - SPARE_S > now}

    def reason(self, request: Request, places: Iterable[int], nodes: Ints, now: float) -> Reason:
        """Return the reason that bookings keep a job from ``nodes``, where it would fit."""
        inside = [place for place in places if self.nodes[place][nodes].any()]
        each = min((self.rows[place] for place in inside), key=lambda row: row.begin_at)
        what = f"maintenance of {each.what}" if not each.project else (
            f"a booking of {each.what} by another project"
        )  # fmt: skip
        need, have = request.walltime_s, max(each.begin_at - now, 0.0)
        text = f"held back by {what} until {_clock(each.end_at, now)} UTC"
        if have > 0.0:
            told = balance(need, have, "s")
            text = (
                f"held back by {what} from {_clock(each.begin_at, now)} to"
                f" {_clock(each.end_at, now)} UTC: its walltime, {told.told(told.need)}, does not"
                f" fit into the {told.told(told.have)} before"
            )
        evidence = {"booked_from": each.begin_at, "booked_until": each.end_at}
        return Reason(ReasonToken.BOOKED, need, have, "s", each.scope, text, evidence)


def _clock(at: float, now: float) -> str:
    """Return a moment as ``14:00``, with its day where that is another."""
    moment, today = (datetime.fromtimestamp(each, UTC) for each in (at, now))
    return f"{moment:%H:%M}" if moment.date() == today.date() else f"{moment:%b %-d, %H:%M}"
