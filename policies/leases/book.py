"""The lease book: how leases are issued, renewed, changed and ended. Pure.

A lease is known by a key that begins with its owner and its cause. Whoever wants it says so again
and again; nobody has to take it back, since it ends by itself. Where leases are kept is the matter
of a :class:`Store`: tables of Postgres on the server, a dictionary in worlds of the twin. What a
kind of lease does of its own (restrictions wait for people, directives are followed) is said by its
book: :mod:`policies.restrictions.book`, :mod:`admission.core.directives.book`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

__all__ = [
    "RENEW_AT",
    "SYSTEM",
    "Book",
    "Changes",
    "Key",
    "Lease",
    "Line",
    "LineKind",
    "Store",
    "Term",
    "Wanted",
    "is_due",
]

#: A lease is renewed when less than this share of it is left.
RENEW_AT = 0.5
SYSTEM = "system"
_RAN_OUT = "its lease ran out"

#: What tells leases apart: owner and cause first.
Key: TypeAlias = tuple[Any, ...]
#: The value of a lease, and when it ends.
Term: TypeAlias = tuple[float | None, datetime]


class LineKind:
    """Lines that the ledgers of all kinds of leases have."""

    ISSUED = "issued"
    CHANGED = "changed"
    RELEASED = "released"
    EXPIRED = "expired"


class Wanted(Protocol):
    """A lease as its owner wants it."""

    @property
    def key(self) -> Key: ...

    @property
    def owner(self) -> str: ...

    @property
    def value(self) -> float | None: ...

    @property
    def expires_at(self) -> datetime: ...


@dataclass(kw_only=True, eq=False)
class Lease(ABC):
    """The fields that all leases have. In Postgres the columns of a model stand for them."""

    owner: str
    cause: str
    kind: str
    value: float | None
    reason: str
    evidence: Any
    issued_at: datetime
    expires_at: datetime
    id: int = 0
    ended_at: datetime | None = None
    ended_by: str = ""
    ended_why: str = ""

    @property
    @abstractmethod
    def key(self) -> Key:
        """Identifies it among live leases; a :class:`Wanted` for it has the same key."""


R = TypeVar("R", bound=Lease)
W = TypeVar("W", bound=Wanted)


@dataclass(frozen=True)
class Line(Generic[R]):
    """A line of the ledger."""

    row: R
    kind: str
    at: datetime
    by: str
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Changes(Generic[R]):
    """The changes that one call makes, for the store to keep at once."""

    now: datetime
    new: list[R] = field(default_factory=list)
    changed: list[R] = field(default_factory=list)
    #: of which nothing but the end has moved
    renewed: list[R] = field(default_factory=list)
    #: that nobody wants any more
    ended: list[R] = field(default_factory=list)
    lines: list[Line[R]] = field(default_factory=list)

    def tell(self, row: R, kind: str, text: str, **data: Any) -> None:
        """Add a line by the owner of a lease."""
        self.lines.append(Line(row, kind, self.now, row.owner, text, data))


class Store(Protocol[R]):
    """Where leases of one kind are kept."""

    def writing(self) -> AbstractContextManager[None]:
        """Open a transaction: all changes in it are kept, or none; other writers wait."""

    def make(self, fields: Mapping[str, Any]) -> R:
        """Return a new lease, which :meth:`save` keeps."""

    def live(self, owners: Collection[str]) -> list[R]:
        """Return the leases of these owners that have not ended."""

    def expired(self, now: datetime) -> list[R]:
        """Return the leases that have not ended, and should have by ``now``."""

    def terms(self, owner: str) -> Mapping[Key, Term]:
        """Return the renewable leases of owners that begin with ``owner``: value and end by key."""

    def save(self, changes: Changes[R]) -> None:
        """Keep changes and their lines."""


def is_due(held: Term | None, wanted: Term, now: datetime) -> bool:
    """Say whether a lease has to be issued, changed or renewed to be as it is wanted."""
    if held is None or held[0] != wanted[0]:
        return True
    return held[1] - now < RENEW_AT * (wanted[1] - now)


class Book(ABC, Generic[R, W]):
    """All leases of one kind."""

    def __init__(self, store: Store[R]) -> None:
        self.store = store

    def apply(self, wanted: Iterable[W], *, now: datetime) -> list[R]:
        """Hold each of ``wanted``; return their rows, in order.

        Doing so again renews the lease, and takes over another value. Of two with one key the last
        counts. What cannot be is left out.
        """
        chosen = {each.key: each for each in wanted if self._can_be(each, now)}
        if not chosen:
            return []
        with self.store.writing():
            self.expire(now)
            known = self._live(chosen.values())
            work = self._begin(now)
            rows = [self._held(work, each, known.get(key)) for key, each in chosen.items()]
            self.store.save(work)
        return rows

    def issue(self, wanted: Iterable[W], *, now: datetime) -> list[R]:
        """Issue the leases that are not held yet; return them. The others are left as they are."""
        chosen = {each.key: each for each in wanted if self._can_be(each, now)}
        if not chosen:
            return []
        with self.store.writing():
            known = self._live(chosen.values())
            work = self._begin(now)
            rows = [self._issue(work, each) for key, each in chosen.items() if key not in known]
            self.store.save(work)
        return rows

    def keep(self, owner: str, wanted: Iterable[W], *, now: datetime, by: str, why: str) -> list[R]:
        """Hold exactly ``wanted`` for all owners whose names begin with ``owner``.

        What they hold beside it is ended. Nothing is written, and no other writer waits, while
        nothing is due. Returns the rows of what was.
        """
        chosen = {each.key: each for each in wanted}
        held = self.store.terms(owner)
        over = held.keys() - chosen.keys()
        due = [
            each
            for key, each in chosen.items()
            if is_due(held.get(key), (each.value, each.expires_at), now)
        ]
        if not over and not due:
            return []
        with self.store.writing():
            left = self.store.live({key[0] for key in over}) if over else []
            self.end([row for row in left if row.key in over], now=now, by=by, why=why)
            return self.apply(due, now=now)

    def release(
        self, owner: str, *, now: datetime, by: str, why: str, cause: str | None = None
    ) -> int:
        """End the leases of ``owner``, or those of one ``cause``; return how many there were."""
        with self.store.writing():
            self.expire(now)
            rows = [row for row in self.store.live([owner]) if cause in (None, row.cause)]
            self.end(rows, now=now, by=by, why=why)
        return len(rows)

    def end(self, rows: Iterable[R], *, now: datetime, by: str, why: str) -> None:
        """End leases whose cause is over."""
        work = self._begin(now)
        for row in rows:
            self._end(work, row, LineKind.RELEASED, at=now, by=by, why=why)
        if work.ended:
            with self.store.writing():
                self.store.save(work)

    def expire(self, now: datetime) -> int:
        """End leases that nobody has renewed; return how many. They had no effect any more."""
        with self.store.writing():
            work = self._begin(now)
            for row in self.store.expired(now):
                self._end(work, row, LineKind.EXPIRED, at=row.expires_at, by=SYSTEM, why=_RAN_OUT)
            if work.ended:
                self.store.save(work)
        return len(work.ended)

    def _live(self, wanted: Iterable[W]) -> dict[Key, R]:
        return {row.key: row for row in self.store.live({each.owner for each in wanted})}

    def _held(self, work: Changes[R], wanted: W, row: R | None) -> R:
        if row is None:
            return self._issue(work, wanted)
        is_changed = self._take_over(work, row, wanted)
        longer = max(row.expires_at, wanted.expires_at)
        if is_changed:
            work.changed.append(row)
        elif longer > row.expires_at:
            work.renewed.append(row)
        row.expires_at = longer
        return row

    def _issue(self, work: Changes[R], wanted: W) -> R:
        row = self.store.make(self._fields(wanted, work.now))
        work.new.append(row)
        self._issued(work, row, wanted)
        return row

    def _end(self, work: Changes[R], row: R, kind: str, *, at: datetime, by: str, why: str) -> None:
        self._cease(row, kind, at=at, by=by, why=why)
        work.ended.append(row)
        work.lines.append(Line(row, kind, at, by, why))

    # --- What each kind does of its own ----------------------------------------------------------

    def _can_be(self, wanted: W, now: datetime) -> bool:
        """Say whether a lease can be as it is wanted."""
        return True

    def _begin(self, now: datetime) -> Changes[R]:
        """Return the changes of one call, empty as yet."""
        return Changes(now)

    @abstractmethod
    def _fields(self, wanted: W, now: datetime) -> Mapping[str, Any]:
        """Return the fields of a new row."""

    @abstractmethod
    def _issued(self, work: Changes[R], row: R, wanted: W) -> None:
        """Complete a new row, and write its lines."""

    @abstractmethod
    def _take_over(self, work: Changes[R], row: R, wanted: W) -> bool:
        """Bring a row to the wanted values, but for its end; say whether it has changed."""

    def _cease(self, row: R, kind: str, *, at: datetime, by: str, why: str) -> None:
        """Record the end of a lease. ``kind``: that of the line that tells of it."""
        row.ended_at, row.ended_by, row.ended_why = at, by[:200], why[:500]
