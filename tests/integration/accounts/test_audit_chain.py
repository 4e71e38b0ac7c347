"""The audit log's chain: what is tampered with is found and named."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, transaction
from pytest_django import Settings

from accounts import audit, audit_chain
from accounts.chain import Head
from accounts.models import AuditEntry, AuditLink
from tests import owner


@pytest.fixture
def the_owner_speaks(django_db_setup: None) -> Iterator[None]:
    owner.speak_as_owner()
    yield
    owner.speak_as_application()


@pytest.fixture
def all_rights(the_owner_speaks: None, db: None) -> None:
    """A transaction, undone in the end, of somebody who has all rights and no scruple."""


@pytest.fixture
def ids(all_rights: None) -> list[int]:
    """Seven entries, linked at once as they are written."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    return [audit.record("system", "test", f"thing-{n}", number=n).pk for n in range(7)]


def _tamper(*statements: str) -> None:
    """No trigger is in the way."""
    with connection.cursor() as cursor:
        for table in ("accounts_auditentry", "accounts_auditlink"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in statements:
            cursor.execute(statement)
        for table in ("accounts_auditentry", "accounts_auditlink"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _verify(*arguments: str) -> str:
    out = io.StringIO()
    call_command("audit", "verify", *arguments, stdout=out)
    return out.getvalue()


def test_a_log_that_was_left_alone_holds(ids: list[int]) -> None:
    assert "holds: 7 entries" in _verify()
    last = AuditLink.objects.get(position=7)
    assert last.entry_id == ids[-1]
    assert bytes(last.hash).hex() in _verify()


@pytest.mark.django_db
def test_an_empty_log_holds() -> None:
    assert "holds: 0 entries" in _verify()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["UPDATE accounts_auditentry SET actor = 'nobody' WHERE id = {3}"],
         "position 4, entry {3}: the entry was changed"),
        (["UPDATE accounts_auditentry SET at = at + interval '1 microsecond' WHERE id = {2}"],
         "position 3, entry {2}: the entry was changed"),
        (["UPDATE accounts_auditentry SET detail = '{{\"number\": 1.0}}' WHERE id = {1}"],
         "position 2, entry {1}: the entry was changed"),
        (["DELETE FROM accounts_auditentry WHERE id = {3}"],
         "position 4, entry {3}: the entry was removed"),
        (["DELETE FROM accounts_auditentry WHERE id = {0}"],
         "position 1, entry {0}: the entry was removed"),
        (["DELETE FROM accounts_auditentry WHERE id = {3}",
          "DELETE FROM accounts_auditlink WHERE entry_id = {3}"],
         "position 5, entry {4}: positions 4 to 4 before it are missing"),
        (["DELETE FROM accounts_auditentry WHERE id = {3}",
          "DELETE FROM accounts_auditlink WHERE entry_id = {3}",
          "UPDATE accounts_auditlink SET position = position - 1 WHERE position > 4"],
         "position 4, entry {4}: it does not follow the one before"),
        (["UPDATE accounts_auditlink SET entry_id = -1 WHERE position = 2",
          "UPDATE accounts_auditlink SET entry_id = {1} WHERE position = 3",
          "UPDATE accounts_auditlink SET entry_id = {2} WHERE position = 2"],
         "position 2, entry {2}: the entry was changed"),
        (["UPDATE accounts_auditlink SET position = -1 WHERE position = 2",
          "UPDATE accounts_auditlink SET position = 2 WHERE position = 3",
          "UPDATE accounts_auditlink SET position = 3 WHERE position = -1"],
         "position 2, entry {2}: it does not follow the one before"),
        (["INSERT INTO accounts_auditentry (id, at, actor, action, target, detail)"
          " VALUES (999999, now(), 'mallory', 'test', '', '{{}}')"],
         "entry 999999: 1 entries are in no chain"),
        (["UPDATE accounts_auditlink SET hash = sha256('x') WHERE position = 5"],
         "position 5, entry {4}: the entry was changed"),
    ],
)  # fmt: skip
def test_what_is_tampered_with_is_found_and_named(
    ids: list[int], statements: list[str], said: str
) -> None:
    _tamper(*(statement.format(*ids) for statement in statements))
    with pytest.raises(CommandError) as broken:
        _verify()
    assert said.format(*ids) in str(broken.value)
    assert broken.value.returncode == 1


CUT = [
    "DELETE FROM accounts_auditentry WHERE id > {4}",
    "DELETE FROM accounts_auditlink WHERE position > 5",
]


def test_an_end_that_was_cut_off_is_found_by_an_anchor_alone(
    ids: list[int], tmp_path: Path
) -> None:
    call_command("audit", "anchor", "--out", str(tmp_path / "anchor"))
    assert "agrees with the anchor" in _verify("--anchor", str(tmp_path / "anchor"))
    _tamper(*(statement.format(*ids) for statement in CUT))
    assert "holds: 5 entries" in _verify()
    with pytest.raises(CommandError, match=r"position 6: .* reached 7 by the anchor"):
        _verify("--anchor", str(tmp_path / "anchor"))


def test_a_log_that_was_written_anew_is_found_by_an_anchor(ids: list[int]) -> None:
    head = audit_chain.head()
    _tamper(
        "DELETE FROM accounts_auditlink",
        f"DELETE FROM accounts_auditentry WHERE id = {ids[3]}",
        f"UPDATE accounts_auditentry SET id = {ids[3]} WHERE id = {ids[6]}",
        "SELECT accounts_audit_append(entry) FROM accounts_auditentry entry",
    )
    audit.record("system", "test", "and one more")
    assert "holds: 7 entries" in _verify()
    with pytest.raises(CommandError, match="position 7: it is another than the anchor's"):
        _verify("--anchor", f"{head.position}:{head.hash.hex()}")


def test_later_entries_agree_with_an_earlier_anchor(ids: list[int]) -> None:
    head = audit_chain.head()
    audit.record("system", "test")
    assert "8 entries" in _verify("--anchor", f"{head.position}:{head.hash.hex()}")


@pytest.mark.parametrize("text", ["", "nonsense", "7:xyz", "{}", '{"position": 7}'])
def test_what_is_no_anchor_is_refused(ids: list[int], text: str, tmp_path: Path) -> None:
    (tmp_path / "anchor").write_text(text)
    with pytest.raises(CommandError, match="neither an anchor nor POSITION:HASH"):
        _verify("--anchor", str(tmp_path / "anchor"))


def test_an_anchor_that_somebody_made_up_is_refused(
    ids: list[int], tmp_path: Path, settings: Settings
) -> None:
    call_command("audit", "anchor", "--out", str(tmp_path / "anchor"))
    found = json.loads((tmp_path / "anchor").read_text())
    (tmp_path / "anchor").write_text(json.dumps({**found, "position": 5}))
    with pytest.raises(CommandError, match="signature is not ours"):
        _verify("--anchor", str(tmp_path / "anchor"))


def test_an_export_can_be_checked_without_the_database(ids: list[int], tmp_path: Path) -> None:
    path = tmp_path / "export"
    call_command("audit", "export", "--out", str(path))
    *lines, anchor = path.read_text().splitlines()
    assert len(lines) == 7
    assert json.loads(json.loads(lines[2])["content"])["target"] == "thing-2"
    assert "7 entries" in _verify("--file", str(path), "--anchor", anchor)
    path.write_text("\n".join([*lines[:3], lines[3].replace("thing-3", "thing-0"), *lines[4:]]))
    with pytest.raises(CommandError, match=f"position 4, entry {ids[3]}: the entry was changed"):
        _verify("--file", str(path))
    path.write_text("\n".join(lines[:4]))
    with pytest.raises(CommandError, match="its end was cut off"):
        _verify("--file", str(path), "--anchor", anchor)


def test_an_export_can_go_on_where_the_last_one_ended(ids: list[int], tmp_path: Path) -> None:
    path = tmp_path / "export"
    call_command("audit", "export", "--after", "5", "--out", str(path))
    assert [json.loads(line)["position"] for line in path.read_text().splitlines()] == [6, 7, 7]
    assert "7 entries" in _verify("--file", str(path))
    with pytest.raises(CommandError, match="exists already"):
        call_command("audit", "export", "--out", str(path))


@pytest.mark.django_db(transaction=True)
def test_transactions_at_the_same_time_make_one_chain() -> None:
    def write(number: int) -> None:
        try:
            for each in range(20):
                with transaction.atomic():
                    audit.record("system", "test", f"{number}", each=each)
                    audit.record("system", "test", f"{number} again", each=each)
                    if each % 5 == 4:
                        transaction.set_rollback(True)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert "holds: 192 entries" in _verify()
    assert AuditEntry.objects.count() == 192


@pytest.mark.django_db(transaction=True)
def test_a_long_transaction_holds_up_nobody() -> None:
    noted, done = threading.Event(), threading.Event()

    def at_length() -> None:
        try:
            with transaction.atomic():
                audit.record("system", "test", "long")
                noted.set()
                done.wait(60)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(at_length)
        assert noted.wait(60)
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = '5s'")
        audit.record("system", "test", "short")
        done.set()
    # Who commits first comes first, whoever wrote first.
    targets = AuditLink.objects.values_list("entry__target", flat=True)
    assert list(targets) == ["short", "long"]
    assert "holds: 2 entries" in _verify()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE accounts_auditlink SET hash = hash",
        "DELETE FROM accounts_auditlink",
        "INSERT INTO accounts_auditlink VALUES (8, 0, sha256(''), sha256(''))",
        "SELECT accounts_audit_append(entry) FROM accounts_auditentry entry",
    ],
)
def test_the_application_cannot_write_the_chain_itself(statement: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DatabaseError, match="permission denied"):
        cursor.execute(statement)


def test_heads_are_of_what_was_committed(ids: list[int]) -> None:
    assert audit_chain.head() == audit_chain.verify()
    assert audit_chain.verify(Head(0, bytes(32))).position == 7
