"""The roles of the database: who owns the schema, and who works with it.

    python -m config.roles

makes both with the help of a superuser, whose URL is in DATABASE_SUPERUSER_URL, by what
DATABASE_OWNER_URL and DATABASE_URL say of them. Run it as often as you like: an installation whose
tables belong to somebody else is taken over in one transaction, without a row being touched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import Connection, Cursor
from psycopg.sql import SQL, Composable, Identifier, Literal

__all__ = ["Login", "RolesError", "grant", "make"]

#: Tables of which the application may do no more than this. All others: read and write.
RIGHTS = {
    "accounts_auditentry": "SELECT, INSERT",
    # A trigger of the owner writes it.
    "accounts_auditlink": "SELECT",
    "django_migrations": "SELECT",
}
#: Functions that do for the application what only the owner may. Nobody else may call them.
FUNCTIONS = (
    "telemetry_create_partition(text, timestamptz, timestamptz)",
    "telemetry_detach_partition(text, text, text)",
    "telemetry_drop_partition(text)",
)
#: Held by whoever creates, detaches or drops a partition: telemetry.samples.
_PARTITIONS_LOCK = 0x50415254


class RolesError(Exception):
    """The roles cannot be made with the given settings; the message says which to set."""


@dataclass(frozen=True)
class Login:
    """A role that logs in."""

    name: str
    password: str


# What belongs to somebody else. Sequences of a column follow their table.
_FOREIGN = """
SELECT format(
    'ALTER %%s %%s OWNER TO %%I',
    CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
        ELSE 'TABLE' END,
    pg_class.oid::regclass, owner.rolname
)
FROM pg_class JOIN pg_roles AS owner ON owner.rolname = %(owner)s
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S')
  AND relowner <> owner.oid
  AND NOT EXISTS (
    SELECT FROM pg_depend
    WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype IN ('a', 'i')
      AND relkind = 'S'
  )
UNION ALL
SELECT format('ALTER ROUTINE %%s OWNER TO %%I', pg_proc.oid::regprocedure, owner.rolname)
FROM pg_proc JOIN pg_roles AS owner ON owner.rolname = %(owner)s
WHERE pronamespace = 'public'::regnamespace AND proowner <> owner.oid
  AND NOT EXISTS (
    SELECT FROM pg_depend
    WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e'
  )
"""


def make(superuser: str, *, owner: Login, application: Login) -> None:
    """Make both roles, and have the owner own the database at URL ``superuser`` and all in it.

    In one transaction. Raises psycopg.Error.
    """
    with psycopg.connect(superuser, options="-c lock_timeout=30s") as connection:
        for login in (owner, application):
            _make_one(connection, login)
        names = {
            "database": Identifier(connection.info.dbname),
            "owner": Identifier(owner.name),
            "application": Identifier(application.name),
        }
        for statement in (
            "ALTER DATABASE {database} OWNER TO {owner}",
            "GRANT CONNECT ON DATABASE {database} TO {application}",
            # What the owner makes in a schema that others may write to is not its own.
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
            "GRANT CREATE, USAGE ON SCHEMA public TO {owner}",
        ):
            connection.execute(SQL(statement).format(**names))
        for (statement,) in connection.execute(_FOREIGN, {"owner": owner.name}).fetchall():
            connection.execute(statement)


def _make_one(connection: Connection[Any], login: Login) -> None:
    """Create a role, or take from it the rights that it should not have."""
    found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [login.name])
    # Hashed here, so that the password itself comes into no log.
    verifier = connection.pgconn.encrypt_password(
        login.password.encode(), login.name.encode(), b"scram-sha-256"
    )
    connection.execute(
        SQL(
            "{} ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
            " PASSWORD {}"
        ).format(
            SQL("ALTER" if found.rowcount else "CREATE"),
            Identifier(login.name),
            Literal(verifier.decode()),
        )
    )


def grant(cursor: Cursor[Any], application: str) -> None:
    """Give ``application`` its rights on the owner's tables, and take all others from it.

    ``cursor`` is the owner's, within a transaction. Tables that are made later can be written to.
    """
    # Else a partition that another process drops in the midst makes this fail.
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_PARTITIONS_LOCK])
    role = {"role": Identifier(application), "database": Identifier(cursor.connection.info.dbname)}
    for statement in _grants():
        cursor.execute(SQL(statement).format(**role))
    for table, rights in RIGHTS.items():
        place: Mapping[str, Composable] = {**role, "table": Identifier(table)}
        cursor.execute(SQL("REVOKE ALL ON {table} FROM {role}").format(**place))
        cursor.execute(SQL(f"GRANT {rights} ON {{table}} TO {{role}}").format(**place))
    for function in FUNCTIONS:
        cursor.execute(SQL(f"GRANT EXECUTE ON FUNCTION {function} TO {{role}}").format(**role))


def _grants() -> tuple[LiteralString, ...]:
    writing: LiteralString = "SELECT, INSERT, UPDATE, DELETE"
    return (
        # A temporary table would stand before the real one of its name.
        "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
        "GRANT USAGE ON SCHEMA public TO {role}",
        "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}",
        f"GRANT {writing} ON ALL TABLES IN SCHEMA public TO {{role}}",
        "REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {role}",
        "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {writing} ON TABLES TO {{role}}",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {role}",
    )


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Make the roles that the environment names; return the exit status."""
    try:
        superuser = _given(environment, "DATABASE_SUPERUSER_URL")
        owner = _login(environment, "DATABASE_OWNER_URL")
        application = _login(environment, "DATABASE_URL")
        if len({owner.name, application.name, unquote(urlsplit(superuser).username or "")}) < 3:
            raise RolesError("superuser, owner and application have to be three roles")
        make(superuser, owner=owner, application=application)
    except (RolesError, psycopg.Error) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _login(environment: Mapping[str, str], setting: str) -> Login:
    parts = urlsplit(_given(environment, setting))
    if not (parts.username and parts.password):
        raise RolesError(f"{setting} has to name a role and its password")
    return Login(unquote(parts.username), unquote(parts.password))


def _given(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise RolesError(f"{name} is not set: postgresql://role:password@host:5432/headroom")
    return environment[name]


if __name__ == "__main__":
    sys.exit(main())
