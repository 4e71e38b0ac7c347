"""Passes on to keepers of checkpoints how fast they may send to another site, and what they say.

The file beside a job is the lease: it ends by itself at its time. A limit counts as applied once
the keepers of all jobs here that it is for say that they keep to it; without a keeper nothing is
sent, and nothing is said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headroom.contracts import SHIP_RATE, LimitReport, LimitState
from headroom.work.contract import ShipLimit
from headroom.work.folder import Folder, ShipOrder, ShipOrders

__all__ = ["Shipping"]

logger = logging.getLogger(__name__)

_MBIT_PER_BYTE = 8 / 1e6
#: Within this a keeper has taken a limit up, s.
_TAKEN_UP_S = 30.0
#: A lease that ends so much later is written anew, s.
_RENEWED_S = 1.0


class Ears(Protocol):
    """What is asked of :class:`headroom.agent.sources.training.TrainingSource`."""

    def obeyed(self, attempt: str) -> frozenset[str] | None: ...


class ReportDesk(Protocol):
    """What is asked of :class:`headroom.agent.actuation.Reports`."""

    def add(self, report: LimitReport) -> None: ...


@dataclass
class _Told:
    """What was told an attempt last, and since when by CLOCK_BOOTTIME."""

    orders: dict[str, ShipOrder]
    since: dict[str, float]


class Shipping:
    """The limits of all attempts of one node."""

    def __init__(
        self, node: str, ears: Ears, reports: ReportDesk, *, clock: Callable[[], float]
    ) -> None:
        """``clock`` is CLOCK_BOOTTIME, which keepers read as well."""
        self._node, self._ears, self._reports, self._clock = node, ears, reports, clock
        self._told: dict[str, _Told] = {}
        self._reported: dict[str, float] = {}

    def pass_on(
        self,
        folders: Mapping[str, Folder],
        limits: Iterable[ShipLimit],
        *,
        server_now: float,
        asked_at: float,
    ) -> None:
        """Have the attempts with ``folders`` keep to ``limits``, and to no others.

        ``server_now`` is the clock by which these end, ``asked_at`` ours when they were asked for.
        """
        wanted: dict[str, dict[str, ShipOrder]] = {attempt: {} for attempt in folders}
        for each in limits:
            if each.attempt in wanted:
                until = asked_at + each.expires_at - server_now
                wanted[each.attempt][each.id] = ShipOrder(each.id, each.bytes_per_s, until)
        for attempt, orders in wanted.items():
            self._write(attempt, folders[attempt], orders)
        self._told = {attempt: self._told[attempt] for attempt in wanted if attempt in self._told}
        self._report()

    def _write(self, attempt: str, folder: Folder, orders: dict[str, ShipOrder]) -> None:
        known = self._told.get(attempt)
        if not _differ({} if known is None else known.orders, orders):
            return
        folder.write_shipping(ShipOrders(list(orders.values())))
        was = {} if known is None else known.since
        now = self._clock()
        self._told[attempt] = _Told(orders, {name: was.get(name, now) for name in orders})
        logger.info("sending of checkpoints limited", extra={"attempt": attempt, "by": len(orders)})

    # --- What is said of it -----------------------------------------------------------------------

    def _report(self) -> None:
        found: dict[str, float] = {}
        for name in {name for told in self._told.values() for name in told.orders}:
            self._report_on(name, found)
        for name in self._reported.keys() - found.keys():
            self._say(name, LimitState.RESTORED, self._reported[name])
        self._reported = found

    def _report_on(self, name: str, found: dict[str, float]) -> None:
        """Report on one limit, if any keeper is to keep to it; note what it asks, Mbit/s."""
        attempts = [attempt for attempt, told in self._told.items() if name in told.orders]
        obeyed = {attempt: self._ears.obeyed(attempt) for attempt in attempts}
        with_keeper = {attempt: ids for attempt, ids in obeyed.items() if ids is not None}
        if not with_keeper:
            return
        asked = max(self._told[attempt].orders[name].bytes_per_s for attempt in with_keeper)
        found[name] = asked * _MBIT_PER_BYTE
        lacking = [attempt for attempt, ids in with_keeper.items() if name not in ids]
        if not lacking:
            self._say(name, LimitState.APPLIED, found[name], applied=found[name])
        elif self._clock() - min(self._told[each].since[name] for each in lacking) > _TAKEN_UP_S:
            error = f"the keeper of the checkpoints of {lacking[0]} does not keep to it"
            self._say(name, LimitState.FAILED, found[name], error=error[:500])

    def _say(
        self,
        name: str,
        state: LimitState,
        asked: float,
        *,
        applied: float | None = None,
        error: str = "",
    ) -> None:
        self._reports.add(
            LimitReport(
                limit=name,
                node=self._node,
                kind=SHIP_RATE,
                state=state,
                at=0.0,
                asked=min(asked, 1e6),
                applied=None if applied is None else min(applied, 1e6),
                error=error,
            )
        )


def _differ(known: Mapping[str, ShipOrder], wanted: Mapping[str, ShipOrder]) -> bool:
    """Say whether a keeper would do otherwise: a lease read again ends a little elsewhere."""
    return known.keys() != wanted.keys() or any(
        known[name].bytes_per_s != each.bytes_per_s
        or abs(known[name].until - each.until) > _RENEWED_S
        for name, each in wanted.items()
    )
