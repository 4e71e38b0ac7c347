"""Roles: what the application may not do, and how an older installation gets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.checks import WARNING
from django.db import DatabaseError, connection, transaction

from config import checks, ownership, roles
from config.embedded import EmbeddedServers
from config.embedded.postgres import Postgres
from config.embedded.server import Server
from config.embedded.state import StateLock, make_state_dir
from telemetry import samples
from tests import owner
from tests.integration.embedded.helpers import REPOSITORY

FORBIDDEN = [
    "ALTER TABLE accounts_auditentry ADD COLUMN note text",
    "ALTER TABLE accounts_auditentry DISABLE TRIGGER ALL",
    "ALTER TABLE accounts_auditentry DISABLE TRIGGER audit_only_grows",
    "ALTER TABLE fleet_rack DISABLE TRIGGER fleet_generation",
    "DROP TRIGGER audit_only_grows ON accounts_auditentry",
    "DROP TABLE accounts_auditentry",
    "DROP TABLE fleet_gpu CASCADE",
    "DELETE FROM accounts_auditentry",
    "UPDATE accounts_auditentry SET actor = 'nobody'",
    "TRUNCATE accounts_auditentry",
    "TRUNCATE fleet_rack CASCADE",
    "DELETE FROM django_migrations",
    "SET session_replication_role = replica",
    "SET ROLE headroom",
    "SET ROLE headroom_owner",
    "SET SESSION AUTHORIZATION headroom",
    "COPY fleet_rack TO PROGRAM 'cat'",
    "COPY fleet_rack TO '/tmp/racks'",
    "COPY fleet_rack FROM '/etc/passwd'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT * FROM pg_authid",
    "SELECT rolpassword FROM pg_authid",
    "CREATE TABLE mine (id int)",
    "CREATE TEMP TABLE accounts_user (id int)",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION pg_temp.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION accounts_auditentry_refuse() RETURNS trigger"
    " LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE RULE silent AS ON INSERT TO accounts_auditentry DO INSTEAD NOTHING",
    "CREATE SCHEMA mine",
    "CREATE EXTENSION dblink",
    "CREATE ROLE mine",
    "CREATE DATABASE mine",
    "ALTER ROLE headroom_app SUPERUSER",
    "ALTER SYSTEM SET fsync = off",
    "SELECT setval('accounts_auditentry_id_seq', 1)",
]


@pytest.mark.django_db
@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_application_is_refused(statement: str) -> None:
    with _application() as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(statement.encode())


def _application() -> psycopg.Connection[Any]:
    """Return a session like the application's, in which each statement is a transaction."""
    parameters = connection.get_connection_params()
    parameters.pop("cursor_factory")
    return psycopg.connect(**{**parameters, "context": None}, autocommit=True)


@pytest.mark.django_db
def test_what_it_has_it_cannot_pass_on() -> None:
    with _application() as session:
        session.execute("GRANT ALL ON accounts_auditentry, accounts_user TO PUBLIC")
        given = session.execute(
            "SELECT relname FROM pg_class, aclexplode(relacl)"
            " WHERE relnamespace = 'public'::regnamespace AND grantee = 0"
        )
        assert given.fetchall() == []


@pytest.mark.django_db
def test_the_role_has_no_weakness() -> None:
    assert ownership.weaknesses() == []
    assert checks.database_role() == []


@pytest.mark.django_db(transaction=True)
def test_a_role_that_owns_the_tables_is_warned_of() -> None:
    try:
        owner.speak_as_owner()
        assert any("switch off their triggers" in each for each in ownership.weaknesses())
        (warning,) = checks.database_role()
        assert (warning.id, warning.level) == ("headroom.W010", WARNING)
        assert "docs/how-to/operate.md" in str(warning.hint)
    finally:
        owner.speak_as_application()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "call",
    [
        "telemetry_create_partition('fleet_rack', '2026-01-01', '2026-01-02')",
        "telemetry_create_partition('pg_class', '2026-01-01', '2026-01-02')",
        "telemetry_create_partition('gpu_sample; SELECT 1', '2026-01-01', '2026-01-02')",
        "telemetry_detach_partition('gpu_sample', 'fleet_rack', 'fleet_rack_00000000')",
        "telemetry_detach_partition('gpu_sample', 'gpu_sample_20200101_0000', 'fleet_node')",
        "telemetry_drop_partition('accounts_auditentry')",
        "telemetry_drop_partition('fleet_rack')",
        "telemetry_drop_partition('gpu_sample')",
        "telemetry_drop_partition('gpu_sample_20200101_0000; DROP TABLE fleet_rack')",
        "telemetry_drop_partition('fleet_rack\" CASCADE; --')",
    ],
)
def test_functions_of_the_owner_touch_nothing_but_partitions(call: str) -> None:
    with (
        pytest.raises(DatabaseError, match="is no part") as refused,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT {call}")
    assert isinstance(refused.value.__cause__, psycopg.errors.WrongObjectType)


@pytest.mark.django_db
def test_nobody_can_put_a_function_of_their_own_in_the_way_of_the_owners() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, prosecdef, proconfig FROM pg_proc"
            " WHERE pronamespace = 'public'::regnamespace AND prosecdef"
        )
        found = cursor.fetchall()
    assert len(found) >= 3
    for name, _, configured in found:
        assert configured == ["search_path=pg_catalog, public, pg_temp"], name


@pytest.mark.django_db
def test_every_table_can_be_read_and_all_but_the_ledgers_written() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, has_table_privilege(oid, 'SELECT'),"
            " has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')"
            " AND has_table_privilege(oid, 'DELETE')"
            " FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
        )
        found = cursor.fetchall()
    assert [name for name, reads, _ in found if not reads] == []
    assert {name for name, _, writes in found if not writes} == set(roles.RIGHTS)


# --- An installation of before ------------------------------------------------------------------


@pytest.fixture
def before(state_dir: Path) -> tuple[Path, str]:
    """A cluster as earlier versions made it: one role, a superuser, who owns everything."""
    make_state_dir(state_dir)
    lock = StateLock(state_dir / "headroom.lock", "test")
    lock.acquire()
    postgres = Postgres(state_dir, durable=False)
    Server.start(postgres)
    try:
        _manage(postgres.superuser_url, state_dir, "migrate", "telemetry", "0009")
        _manage(postgres.superuser_url, state_dir, "migrate", "accounts", "0002")
        with psycopg.connect(postgres.superuser_url, autocommit=True) as session:
            session.execute(_ROWS)
    finally:
        postgres.stop()
        lock.release()
    return state_dir, postgres.superuser_url


_ROWS = """
CREATE TABLE gpu_sample_20260101_0000 PARTITION OF gpu_sample
    FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-01-01 01:00+00');
CREATE TABLE gpu_sample_20251231_2300_0a1b2c3d (LIKE gpu_sample);
INSERT INTO gpu_sample (ts, gpu_id, power_w) VALUES ('2026-01-01 00:10+00', 7, 500);
INSERT INTO gpu_sample_20251231_2300_0a1b2c3d (ts, gpu_id) VALUES ('2025-12-31 23:10+00', 7);
INSERT INTO accounts_auditentry (at, actor, action, target, detail)
    VALUES (now(), 'alice', 'fleet.apply', 'oslo', '{}'), (now(), 'bob', 'login', '', '{}')
"""


def _manage(url: str, state_dir: Path, *arguments: str, **more: str) -> None:
    given = {"DATABASE_URL": url, "HEADROOM_STATE_DIR": str(state_dir), **more}
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY, env=_outside() | given, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _outside() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "DATABASE_OWNER_URL"}


def test_an_older_installation_is_taken_over_without_loss(before: tuple[Path, str]) -> None:
    state_dir, superuser = before
    with EmbeddedServers(state_dir, valkey=False, durable=False) as servers:
        url, owner_url = str(servers.database_url), str(servers.owner_url)
        assert servers.superuser_url == superuser
        assert len({urlsplit(each).password for each in (url, owner_url, superuser)}) == 3
        _manage(url, state_dir, "prepare", "--no-static", DATABASE_OWNER_URL=owner_url)
        with psycopg.connect(url, options="-c timezone=UTC") as application:
            count = "SELECT count(*) FROM {}"
            assert _one(application, count.format("gpu_sample")) == 1
            assert _one(application, count.format("gpu_sample_20251231_2300_0a1b2c3d")) == 1
            rows = application.execute("SELECT actor FROM accounts_auditentry ORDER BY id")
            assert [actor for (actor,) in rows][:2] == ["alice", "bob"]
            assert _one(application, _STRANGERS) == 0
            cursor = application.cursor()
            (old,) = samples.existing_partitions(cursor, "gpu_sample")
            samples.detach(cursor, old, f"{old.name}_00000000")
            assert _one(application, count.format(f"{old.name}_00000000")) == 1
            samples.drop(cursor, f"{old.name}_00000000")
        refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
        with psycopg.connect(url) as application, refused:
            application.execute("ALTER TABLE accounts_auditentry DISABLE TRIGGER USER")
    # A second start finds nothing to do.
    with EmbeddedServers(state_dir, valkey=False, durable=False) as servers:
        assert servers.database_url == url
        with psycopg.connect(url) as application:
            assert _one(application, "SELECT count(*) FROM accounts_auditentry") >= 2


_STRANGERS = """
SELECT count(*) FROM (
    SELECT relowner AS owner FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT datdba FROM pg_database WHERE datname = current_database()
) AS found WHERE owner <> 'headroom_owner'::regrole
"""


def _one(session: psycopg.Connection[Any], query: str) -> Any:
    row = session.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


# --- Servers of one's own -------------------------------------------------------------------------


def test_the_command_wants_three_roles(capsys: pytest.CaptureFixture[str]) -> None:
    one = "postgresql://one:secret@127.0.0.1:1/headroom"
    given = {"DATABASE_SUPERUSER_URL": one, "DATABASE_OWNER_URL": one}
    assert roles.main(given) == 1
    assert "DATABASE_URL is not set" in capsys.readouterr().err
    assert roles.main({**given, "DATABASE_URL": one}) == 1
    assert "three roles" in capsys.readouterr().err
    assert roles.main({**given, "DATABASE_URL": "postgresql://two@127.0.0.1/headroom"}) == 1
    assert "DATABASE_URL has to name a role and its password" in capsys.readouterr().err
