"""The audit log only grows, whoever asks and however."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError

from accounts import audit
from accounts.models import AuditEntry, User
from tests import owner
from tests.builders.accounts import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def entry() -> AuditEntry:
    return audit.record("system", "test", "something", number=1)


CHANGES = [
    "UPDATE accounts_auditentry SET actor = 'nobody'",
    "DELETE FROM accounts_auditentry",
    "DELETE FROM ONLY accounts_auditentry WHERE id > 0",
    "WITH gone AS (DELETE FROM accounts_auditentry RETURNING id) SELECT count(*) FROM gone",
    "INSERT INTO accounts_auditentry (id, at, actor, action, target, detail)"
    " SELECT id, at, 'nobody', action, target, detail FROM accounts_auditentry"
    " ON CONFLICT (id) DO UPDATE SET actor = excluded.actor",
    "MERGE INTO accounts_auditentry USING accounts_auditentry other"
    " ON accounts_auditentry.id = other.id WHEN MATCHED THEN DELETE",
]


@pytest.mark.parametrize("statement", [*CHANGES, "TRUNCATE accounts_auditentry"])
def test_the_application_may_not_change_it(entry: AuditEntry, statement: str) -> None:
    with (
        pytest.raises(DatabaseError, match="permission denied for table accounts_auditentry"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    entry.refresh_from_db()
    assert entry.actor == "system"


@pytest.mark.django_db(transaction=True)
def test_a_trigger_keeps_the_owner_from_changing_it_by_mistake(entry: AuditEntry) -> None:
    with owner.session() as session:
        for statement in CHANGES:
            with pytest.raises(psycopg.DatabaseError, match="the audit log only grows"):
                session.execute(statement.encode())
        # Off in the tests' database, see tests/owner.py.
        on = "ALTER TABLE accounts_auditentry ENABLE TRIGGER audit_is_not_truncated"
        empty = "TRUNCATE accounts_auditentry CASCADE"
        with pytest.raises(psycopg.DatabaseError, match="TRUNCATE is refused"):
            session.execute(f"{on}; {empty}".encode())
    entry.refresh_from_db()
    assert entry.actor == "system"


def test_the_orm_cannot_change_it(entry: AuditEntry) -> None:
    entry.actor = "nobody"
    for change in (
        entry.save,
        entry.delete,
        lambda: AuditEntry.objects.update(actor="nobody"),
        lambda: AuditEntry.objects.all().delete(),
    ):
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            change()


def test_it_outlives_the_people_in_it() -> None:
    user = make_user(username="leaving")
    audit.record(user, "fleet.apply", "oslo")
    user.delete()
    assert not User.objects.filter(username="leaving").exists()
    assert AuditEntry.objects.get(action="fleet.apply").actor == "leaving"


def test_an_entry_is_part_of_the_transaction_that_it_tells_of() -> None:
    with transaction.atomic():
        audit.record("system", "test.undone")
        transaction.set_rollback(True)
    assert not AuditEntry.objects.filter(action="test.undone").exists()
