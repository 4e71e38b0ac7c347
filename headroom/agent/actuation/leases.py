"""The limits that are in force now, by the server's last answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from headroom.contracts import Limit, LimitSet, LimitState, LinkLimit

__all__ = ["LeaseBook", "LinkLeases"]

L = TypeVar("L", Limit, LinkLimit)

#: A limit that the server no longer names this shortly before its end has expired, s.
_EARLY_S = 2.0
#: How long it is known why a limit ended, s.
_REMEMBERED_S = 3600.0


@dataclass(frozen=True)
class _Lease(Generic[L]):
    limit: L
    #: By the monotonic clock, so that no step of the machine's clock draws it out.
    ends_at: float


class _Book(Generic[L]):
    """The leases of one kind on one node. One thread may write while another reads."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._leases: dict[str, _Lease[L]] = {}
        self._valid_until = 0.0
        self._gone: dict[str, tuple[float, LimitState]] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def take(self, answer: LimitSet, *, sent_at: float, got_at: float) -> None:
        """Replace all leases by those of an answer to a request, timed by the monotonic clock.

        The server's clock is taken to be that of the answer half-way between the two.
        """
        to_monotonic = (sent_at + got_at) / 2 - answer.now
        taken = {
            limit.id: _Lease(limit, limit.expires_at + to_monotonic) for limit in self._of(answer)
        }
        self._replace(taken, got_at, valid_until=sent_at + answer.valid_for_s)

    def clear(self, now: float) -> None:
        """There are no limits any more."""
        self._replace({}, now)

    def close(self, now: float) -> None:
        """There are no limits, whatever the server may still say."""
        self._replace({}, now, is_last=True)

    def _of(self, answer: LimitSet) -> Iterable[L]:
        """Return the limits of an answer that are in this book."""
        raise NotImplementedError

    def in_force(self, now: float) -> list[L]:
        """Return the limits whose time is not up."""
        with self._lock:
            leases, valid_until = self._leases, self._valid_until
        if now >= valid_until:
            return []
        return [lease.limit for lease in leases.values() if now < lease.ends_at]

    def ends_at(self, limit_id: str) -> float:
        """Return when a limit ends at the latest (monotonic s); 0 for one that is not known."""
        with self._lock:
            lease = self._leases.get(limit_id)
            return 0.0 if lease is None else min(lease.ends_at, self._valid_until)

    def why_ended(self, limit_id: str) -> LimitState:
        """Return how a limit ended that is no longer in force."""
        if limit_id in self._leases:
            return LimitState.EXPIRED
        _, state = self._gone.get(limit_id, (0.0, LimitState.RESTORED))
        return state

    def _replace(
        self,
        taken: dict[str, _Lease[L]],
        now: float,
        *,
        valid_until: float = 0.0,
        is_last: bool = False,
    ) -> None:
        with self._lock:
            if self._is_closed:
                return
            gone = {i: end for i, end in self._gone.items() if now - end[0] < _REMEMBERED_S}
            for limit_id, lease in self._leases.items():
                if limit_id not in taken:
                    is_up = lease.ends_at - now < _EARLY_S or now >= self._valid_until
                    gone[limit_id] = (now, LimitState.EXPIRED if is_up else LimitState.RESTORED)
            self._leases, self._gone = taken, gone
            self._valid_until = valid_until
            self._is_closed = is_last


class LeaseBook(_Book[Limit]):
    """The leases on GPUs of one node."""

    def _of(self, answer: LimitSet) -> Iterable[Limit]:
        return (limit for limit in answer.limits if limit.node == self._node)


class LinkLeases(_Book[LinkLimit]):
    """The leases on links: all that the server tells, for it was asked for those of this node."""

    def _of(self, answer: LimitSet) -> Iterable[LinkLimit]:
        return answer.links
