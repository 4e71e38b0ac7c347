"""The two roles of the tests' database: what is tested works under the lesser one.

A right that it lacks so fails a test. With a DATABASE_URL of one's own there is but one role, and
everything here speaks as it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
from django.core.management.commands import flush
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations

from config import roles
from tests.services import OWNER_URL

#: Of ledgers that cannot be emptied anywhere else.
_TRUNCATE_TRIGGERS = {
    "accounts_auditentry": "audit_is_not_truncated",
    "accounts_auditlink": "audit_chain_is_not_truncated",
}


def speak_as_owner() -> None:
    """Have Django's connection be the owner's."""
    _speak_as(os.environ.get(OWNER_URL, ""))


def let_be_emptied(session: psycopg.Connection[Any] | psycopg.Cursor[Any]) -> None:
    """Switch off what keeps ledgers from TRUNCATE, so that tests that commit can be undone."""
    for table, trigger in _TRUNCATE_TRIGGERS.items():
        session.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}".encode())


def speak_as_application() -> None:
    """Have Django's connection be that of what is tested."""
    _speak_as(os.environ["DATABASE_URL"])


def hand_over() -> None:
    """Give the application's role its rights, and have Django's connection be its own."""
    application = urlsplit(os.environ["DATABASE_URL"]).username or ""
    with connection.cursor() as cursor:
        let_be_emptied(cursor.cursor)
        if OWNER_URL in os.environ:
            roles.grant(cursor.cursor, unquote(application))
    speak_as_application()
    # Of all connections: a browser test, in whose thread a loop runs, has another than the others.
    DatabaseOperations.execute_sql_flush = _flush  # type: ignore[method-assign, assignment]
    flush.emit_post_migrate_signal = _make_nothing_anew  # type: ignore[attr-defined]


@contextmanager
def session() -> Iterator[psycopg.Connection[Any]]:
    """Connect to the tests' database as its owner, each statement a transaction."""
    url = os.environ.get(OWNER_URL) or os.environ["DATABASE_URL"]
    name = connection.settings_dict["NAME"]
    with psycopg.connect(url, dbname=name, autocommit=True) as connected:
        yield connected


#: What Django makes anew after each flush, at some cost: it is left as it is.
_STAYS = frozenset({"django_content_type", "auth_permission"})


def _make_nothing_anew(*_: object) -> None:
    """Stand for what would make content types and permissions: they have stayed."""


def _flush(_: DatabaseOperations, sql_list: Iterable[str]) -> None:
    """Empty the tables after a test that commits. The application's role could not.

    Of more than a hundred few have rows: to truncate the others takes a quarter of a second.
    """
    named = {table for each in sql_list for table in re.findall(r'"(\w+)"', each)} - _STAYS
    with session() as connected:
        filled = connected.execute(
            " UNION ALL ".join(
                f"SELECT '{table}' WHERE EXISTS (SELECT FROM \"{table}\")" for table in named
            ).encode()
        )
        if tables := [f'"{table}"' for (table,) in filled.fetchall()]:
            connected.execute(f"TRUNCATE {', '.join(tables)} CASCADE".encode())


def _speak_as(url: str) -> None:
    if not url:
        return
    parts = urlsplit(url)
    connection.close()
    connection.settings_dict |= {
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }
