"""Leases in tables of Postgres, as the server has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import connection, models, transaction
from psycopg import sql

from policies.leases.book import Changes, Key, Line, Term

__all__ = ["PostgresStore"]

# Books of models are of Any: mypy looks at bounds before fields of models have their types.
M = TypeVar("M", bound=models.Model)

# The longer lease stays: two that renew at once may come in either order.
_RENEW = """
UPDATE {table} AS held
SET expires_at = greatest(held.expires_at, new.expires_at)
FROM unnest(%s::bigint[], %s::timestamptz[]) AS new (id, expires_at)
WHERE held.id = new.id AND held.expires_at < new.expires_at
"""


class PostgresStore(ABC, Generic[M]):
    """Leases of one table, with their ledger in another."""

    #: the columns of a key, owner and cause first
    key: Sequence[str]
    #: what a change of a row may touch
    fields: Sequence[str]

    def __init__(self, model: type[M], ledger: type[models.Model]) -> None:
        self._model, self._ledger = model, ledger

    @contextmanager
    def writing(self) -> Iterator[None]:
        with transaction.atomic():
            self._lock()
            yield

    def make(self, fields: Mapping[str, Any]) -> M:
        return self._model(**fields)

    def live(self, owners: Collection[str]) -> list[M]:
        """One query."""
        return list(self._locked().filter(owner__in=owners))

    def expired(self, now: datetime) -> list[M]:
        """One query."""
        return list(self._locked().filter(expires_at__lte=now))

    def terms(self, owner: str) -> Mapping[Key, Term]:
        """One query, which locks nothing."""
        # As tuples: to make thousands of model instances takes ten times as long.
        rows = self._renewed().filter(owner__startswith=owner)
        found = rows.values_list(*self.key, "value", "expires_at")
        return {tuple(row[:-2]): (row[-2], row[-1]) for row in found}

    def save(self, changes: Changes[Any]) -> None:
        objects = self._model._default_manager
        objects.bulk_create(changes.new)
        objects.bulk_update([*changes.changed, *changes.ended], self.fields, batch_size=500)
        self._renew(changes.renewed)
        self.write([self.event(line) for line in changes.lines])

    def _renew(self, rows: Sequence[Any]) -> None:
        if not rows:
            return
        table = sql.Identifier(self._model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.execute(
                sql.SQL(_RENEW).format(table=table).as_string(),
                [[row.pk for row in rows], [row.expires_at for row in rows]],
            )

    def write(self, events: Sequence[models.Model]) -> None:
        """Write lines of the ledger; one that is there already stays as it is. One query."""
        self._ledger._default_manager.bulk_create(events, ignore_conflicts=True)
        self._count(events)

    @abstractmethod
    def event(self, line: Line[Any]) -> models.Model:
        """Return a line as a row of the ledger."""

    @abstractmethod
    def _live(self) -> models.QuerySet[M]:
        """Return the leases that have not ended."""

    def _renewed(self) -> models.QuerySet[M]:
        """Return those of the live ones that are renewed; others are given once."""
        return self._live()

    def _lock(self) -> None:
        """Wait for all others who write, where they may not do so at once."""

    def _locked(self) -> models.QuerySet[M]:
        """Return the live ones, for a transaction that may change them."""
        return self._live()

    @abstractmethod
    def _count(self, events: Sequence[Any]) -> None:
        """Count lines for Prometheus."""
