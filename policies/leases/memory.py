"""Leases in memory, as worlds of the twin have them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

from policies.leases.book import Changes, Key, Lease, Line, Term

__all__ = ["MemoryStore"]


R = TypeVar("R", bound=Lease)


class MemoryStore(Generic[R]):
    """Leases that have not ended, for one thread. Lines of the ledger are passed to ``tell``."""

    def __init__(
        self, make: Callable[..., R], tell: Callable[[Line[R]], None] | None = None
    ) -> None:
        self._make, self._tell = make, tell
        self._rows: dict[Key, R] = {}
        self._issued = 0
        #: goes up with each change but renewals
        self.version = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    @contextmanager
    def writing(self) -> Iterator[None]:
        yield

    def make(self, fields: Mapping[str, Any]) -> R:
        return self._make(**fields)

    def live(self, owners: Collection[str]) -> list[R]:
        return [row for row in self if row.owner in owners]

    def expired(self, now: datetime) -> list[R]:
        return [row for row in self if row.expires_at <= now]

    def terms(self, owner: str) -> Mapping[Key, Term]:
        return {row.key: (row.value, row.expires_at) for row in self if row.owner.startswith(owner)}

    def save(self, changes: Changes[R]) -> None:
        for row in changes.new:
            self._issued += 1
            row.id = self._issued
            self._rows[row.key] = row
        for row in changes.ended:
            del self._rows[row.key]
        self.version += bool(changes.new or changes.changed or changes.ended)
        if self._tell is not None:
            for line in changes.lines:
                self._tell(line)
