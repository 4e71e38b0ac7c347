"""Reading a span out of all the places where its rows may lie, each row exactly once.

Rows move: a partition is first detached (its rows are then in a table of their own), then it is
dropped in the transaction that enters its files in the catalogue. What the catalogue says before
the tables are read and after it is compared: where both are the same, nothing moved in between, and
what was read is whole. Where they differ, it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, transaction
from psycopg import Cursor
from psycopg.errors import UndefinedTable

from telemetry.cold import catalog, scan
from telemetry.samples import Table
from telemetry.store import hot
from telemetry.store.columns import (
    Columns,
    SupersedingTable,
    Window,
    concatenate,
    last_of_each,
    order_by,
    take,
)
from telemetry.store.hot import IdRange

#: Moves are hours apart, so a second try nearly always finds rest.
_TRIES = 5


class Unsettled(RuntimeError):
    """Rows moved again and again while they were read, or a file of them is lost."""


def read(
    table: Table,
    names: Sequence[str],
    window: Window,
    ids: Sequence[int] | IdRange | None = None,
) -> Columns:
    """Return ``names`` of the rows in ``window``, in order of their thing and time.

    ``ids`` narrows it to some things. Of roll-ups, which are written anew where readings come late,
    the newest is given. Two queries of the catalogue and one of each place.
    """
    wanted = tuple(dict.fromkeys(("ts", table.key, *names)))
    for _ in range(_TRIES):
        pieces = _try(table, wanted, window, ids)
        if pieces is not None:
            rows = concatenate(pieces)
            is_superseding = isinstance(table, SupersedingTable)
            return (last_of_each if is_superseding else order_by)(rows, table.key)
    raise Unsettled(f"{table.name} did not rest between {window.start_at} and {window.end_at}")


def bins(
    table: Table,
    totals: Mapping[str, str],
    window: Window,
    ids: Sequence[int] | None,
    step_s: int,
) -> Columns | None:
    """Return the rows in ``window`` totaled by Postgres in buckets of ``step_s``, in order.

    None where rows may lie elsewhere too: those are for :func:`read`. See
    :func:`telemetry.store.hot.fetch_bins` for what is in them.
    """
    with connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        nowhere_else = catalog.Parts((), ())
        if catalog.parts(cursor, table.name, window) != nowhere_else:
            return None
        with transaction.atomic():
            found = hot.fetch_bins(cursor, table, totals, window, ids, step_s)
        if catalog.parts(cursor, table.name, window) != nowhere_else:
            return None
    return order_by(found, table.key)


def _try(
    table: Table, names: Sequence[str], window: Window, ids: Sequence[int] | IdRange | None
) -> list[Columns] | None:
    """Return the rows of each place, the oldest place first; None where some moved meanwhile."""
    with connection.cursor() as django_cursor:
        cursor: Cursor[Any] = django_cursor.cursor
        before = catalog.parts(cursor, table.name, window)
        found = []
        try:
            for each in before.detached:
                with transaction.atomic():  # it may be gone: that must not spoil a transaction
                    rows = hot.fetch(cursor, each.relation, table, names, window, ids)
                found.append(take(rows, rows[table.key] >= each.first_id))
        except UndefinedTable:
            return None
        found.append(hot.fetch(cursor, table.name, table, names, window, ids))
        if catalog.parts(cursor, table.name, window) != before:
            return None
    try:
        return [*scan.fetch(before.files, table, names, window, ids), *found]
    except FileNotFoundError:
        return None  # retired or merged with others since
