"""Speaking to the database as its owner, for migrations alone; and faults of the two roles.

The application's role can neither make tables nor change them, so that whoever gets hold of it
cannot switch off a trigger or empty the audit log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection, transaction

from config import env, roles
from config.embedded.state import read_env

__all__ = ["FILE", "as_owner", "grant", "owner_url", "weaknesses"]

#: In the state folder: where ``make run`` keeps the owner's URL. No service reads it.
FILE = "owner-env"


def owner_url() -> str:
    """Return DATABASE_OWNER_URL, or the URL that ``make run`` wrote down; empty: there is none."""
    if url := os.environ.get("DATABASE_OWNER_URL", ""):
        return url
    return read_env(settings.STATE_DIR / FILE).get("DATABASE_OWNER_URL", "")


@contextmanager
def as_owner() -> Iterator[None]:
    """Have this thread's connection be the owner's until the end of the block.

    Where no owner is named, the application's role is taken for it. Not within a transaction.
    """
    url = owner_url()
    before = connection.settings_dict
    # The database is DATABASE_URL's, whatever the other names.
    owner = {key: value for key, value in env.database(url).items() if key != "NAME"} if url else {}
    if owner.get("USER", before["USER"]) == before["USER"]:
        yield
        return
    connection.close()
    connection.settings_dict = {**before, **owner}
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict = before


def grant() -> bool:
    """Give the application's role its rights, as the owner. False: there is but one role."""
    application = str(settings.DATABASES["default"]["USER"])
    if not application or connection.settings_dict["USER"] == application:
        return False
    with transaction.atomic(), connection.cursor() as cursor:
        roles.grant(cursor.cursor, application)
    return True


_LOOK = """
SELECT rolsuper, rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls,
    coalesce(pg_has_role(current_user, owner.relowner, 'MEMBER'), false),
    coalesce(has_table_privilege(owner.oid, 'UPDATE, DELETE, TRUNCATE'), false)
FROM pg_roles LEFT JOIN pg_class AS owner ON owner.oid = to_regclass('accounts_auditentry')
WHERE rolname = current_user
"""


def weaknesses() -> list[str]:
    """Return the rights that the application's role should not have, in words. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_LOOK)
        found = cursor.fetchone()
    told = (
        "is a superuser",
        "may make roles or databases, replicate, or pass over row security",
        "owns the tables, and could switch off their triggers",
        "may change entries of the audit log",
    )
    return [words for words, is_so in zip(told, found, strict=True) if is_so]
