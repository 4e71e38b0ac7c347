"""Advisory locks of the database, for work that only one process may do at a time.

They belong to the database session, and so end with a process that is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

__all__ = ["only_one", "wait_until_commit"]


@contextmanager
def only_one(*keys: int) -> Iterator[bool]:
    """Hold the lock of one key, or of two; the value is False where another process holds it."""
    places = ", ".join(["%s"] * len(keys))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_try_advisory_lock({places})", keys)
        held = bool(cursor.fetchone()[0])
    try:
        yield held
    finally:
        if held:
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT pg_advisory_unlock({places})", keys)


def wait_until_commit(key: int, of: str | None = None) -> None:
    """Wait for the lock of ``key``, or of the thing ``of`` under it, until the transaction ends.

    Two things may share a lock, which costs a wait and no more.
    """
    with connection.cursor() as cursor:
        if of is None:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])
        else:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [key, of])
