"""The attempts that a decision is about, found over arrays: of 15,000 jobs few are.

What a store keeps of each attempt is read of those alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from admission.core.allocation.allocations import Allocations
from admission.core.allocation.watts import Gang
from admission.core.directives.book import Kind, Wanted
from admission.core.request import Request
from admission.core.response.respond import ResponseStatus, Throttling
from admission.core.response.shedding import SAVE_S, USUAL_SAVE_S
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["Active", "Placed", "save_s", "stop_wanted"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

#: A stop that nobody has heard of for so long is given up: the attempt is taken for lost by then.
_STOP_WITHIN = timedelta(hours=1)


class Active(Gang, Protocol):
    """An open attempt on the fleet, as it is now. Parts that the inventory lacks are left out."""

    @property
    def id(self) -> int: ...

    @property
    def key(self) -> str: ...

    @property
    def request(self) -> Request: ...

    @property
    def gpu_count(self) -> int: ...

    @property
    def placed_cap_w(self) -> float | None:
        """The cap under which it was admitted, W per GPU; None: none."""

    @property
    def has_begun(self) -> bool: ...

    @property
    def is_ending(self) -> bool:
        """Whether a directive to end it is in force, whoever gave it."""

    @property
    def status(self) -> ResponseStatus:
        """The status of its graduated response."""

    def lost_gpu_s(self, now: float) -> float:
        """Return the work that ending at ``now`` (Unix s) would throw away, GPU·s."""


class Placed(ABC):
    """All open attempts on the fleet. Values by attempt are arrays in their order."""

    def __init__(self, held: Allocations) -> None:
        self.held, self.fleet = held, held.fleet
        self.ids: Ints = np.array([each.id for each in held.attempts], dtype=np.int64)
        counts = [len(each.placement.nodes) for each in held.attempts]
        #: those whose nodes are all gone from the inventory stand nowhere
        self._stands: Bools = np.array(counts, dtype=np.int64) > 0
        self._firsts: Ints = np.array(held.firsts, dtype=np.int64)[self._stands]
        nodes = [row for each in held.attempts for row in each.placement.nodes]
        self._nodes: Ints = np.array(nodes, dtype=np.int64)
        self._racks: Ints = self.fleet.nodes.rack[self._nodes]

    def __len__(self) -> int:
        return len(self.ids)

    def least(self, by_rack: Floats) -> Floats:
        """Return the least value by rack over the racks of each attempt; inf where it has none."""
        found = np.full(len(self), np.inf)
        if len(self._firsts):
            found[self._stands] = np.minimum.reduceat(by_rack[self._racks], self._firsts)
        return found

    def on_nodes(self, rows: Ints) -> Bools:
        """Say of each attempt whether it is on one of these nodes."""
        found = np.zeros(len(self), dtype=bool)
        if len(self._firsts):
            here = np.isin(self._nodes, rows)
            found[self._stands] = np.logical_or.reduceat(here, self._firsts)
        return found

    def in_scope(self, scope: Scope, in_force: InForce) -> Ints:
        """Return the ids of the attempts that are partly in ``scope``."""
        kind, name, attempts = scope.kind, scope.name, self.held.attempts
        if kind is ScopeKind.JOB:
            here = [name in (each.request.job, each.request.key) for each in attempts]
        elif kind is ScopeKind.CLASS:
            here = [each.request.job_class == name for each in attempts]
        elif kind in (ScopeKind.STORAGE, ScopeKind.LINK):
            here = [each.placement.storage == name for each in attempts]
        else:
            here = self.on_nodes(in_force.node_rows(self.fleet, scope)).tolist()
        found: Ints = self.ids[np.array(here, dtype=bool)]
        return found

    # --- What a store keeps of them --------------------------------------------------------------

    @abstractmethod
    def below(self) -> Floats:
        """Return the margin below which each attempt responds; -inf for one that never does."""

    @abstractmethod
    def load(self, ids: Iterable[int]) -> Sequence[Active]:
        """Return attempts that are still open, as they are now, in the order of their keys."""

    @abstractmethod
    def remembered(self) -> Iterable[int]:
        """Return the ids of attempts with a stored response status."""

    @abstractmethod
    def remember(self, statuses: Mapping[int, ResponseStatus]) -> None:
        """Store the response statuses of some attempts, by id."""

    @abstractmethod
    def agreed(self, concerned: Sequence[Active]) -> Mapping[int, Throttling]:
        """Return the throttling terms of attempts, by id. A batch scale of 1: a cap instead."""

    @abstractmethod
    def overloads(self, over: Collection[Scope], now: datetime) -> Mapping[Scope, datetime]:
        """Store which scopes are over their budgets (``over``); return since when each is."""

    @abstractmethod
    def stop(
        self,
        leaving: Sequence[Active],
        *,
        owner: str,
        cause: str,
        why: str,
        now: datetime,
        site: str | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> None:
        """Have attempts save, end, and their phases wait again.

        ``site``: they are to go on there, or at any other site where it is "". Those that are about
        to end already are left out.
        """


def save_s(owner: str, request: Request, *, has_begun: bool) -> float:
    """Return how long an attempt may take to save before it ends, s; 0: it does not save."""
    if request.checkpoint_interval_s is None or not has_begun:
        return 0.0
    return SAVE_S.get(owner.partition(":")[0], USUAL_SAVE_S)


def stop_wanted(
    attempt_id: int,
    *,
    owner: str,
    cause: str,
    why: str,
    save_within_s: float,
    now: datetime,
    site: str | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> Wanted:
    """Return the directive by which an attempt ends: see :meth:`Placed.stop`."""
    return Wanted(
        attempt_id=attempt_id,
        kind=Kind.STOP if site is None else Kind.RESUME_AT_SITE,
        owner=owner,
        cause=cause,
        reason=why,
        expires_at=now + _STOP_WITHIN,
        arguments={"save_s": save_within_s, **({"site": site} if site else {})},
        evidence=evidence or {},
    )
