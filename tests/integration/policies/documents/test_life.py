"""What holds for the versions of every kind of document: review, order, and two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.jobs.catalog import CLASSES
from admission.policy.catalog import POLICIES
from admission.slos.actions import SLOS
from headroom.documents import DocumentError
from policies.documents import life
from policies.documents.life import Kind, Refused
from policies.documents.models import States, Version
from policies.playbooks.versions import PLAYBOOKS
from policies.rollouts.following import ROLLOUTS
from policies.rules.actions import RULES
from tests.builders.accounts import api_client
from tests.builders.documents import put_in_force
from tests.builders.policies import ASKS, playbook_text, rule_text

KINDS: dict[str, tuple[Kind[Any], str, str]] = {
    "rules": (RULES, "rack-hot", rule_text("rack-hot")),
    "playbooks": (PLAYBOOKS, "cool-down", playbook_text(ASKS, "cool-down")),
    "classes": (CLASSES, "nightly", "name: nightly\npriority: 3\n"),
    "admission-policies": (POLICIES, "narrow", "name: narrow\nadmission: {tuning: {depth: 9}}\n"),
    "rollouts": (
        ROLLOUTS,
        "driver",
        "name: driver\nchange: {kind: driver, version: '580'}\nplaybook: change\n"
        "steps: [{share: 0.5}]\nguards: [{metric: power, matters: 0.02}]\n",
    ),
    "slos": (SLOS, "begins", "name: begins\nmeasure: start\ntarget: 0.9\nwithin: 10m\n"),
}
each_kind = pytest.mark.parametrize("plural", KINDS)


def post(client: Client, url: str, **body: Any) -> Any:
    return client.post(url, body, content_type="application/json")


def states(kind: Kind[Any], name: str) -> list[str]:
    rows = kind.model.objects.filter(name=name).order_by("number")
    return list(rows.values_list("state", flat=True))


# --- One after the other -------------------------------------------------------------------------


@each_kind
@pytest.mark.django_db
def test_who_wrote_a_version_does_not_let_it_count(plural: str) -> None:
    kind, name, text = KINDS[plural]
    author, reviewer = api_client(Role.OPERATOR), api_client(Role.OPERATOR)
    made = post(author, f"/api/v1/{plural}", text=text, note="to try it")
    assert made.status_code == 201, made.json()
    said = made.json()
    assert (said["name"], said["number"], said["state"]) == (name, 1, "draft")
    assert (said["note"], said["text"]) == ("to try it", text)
    promote = f"/api/v1/{plural}/{name}/versions/1/promote"
    own = post(author, promote, to="active")
    assert (own.status_code, own.json()["error"]["code"]) == (409, "wrong_state")
    done = post(reviewer, promote, to="active").json()
    assert done["state"] == "active"
    assert done["reviewer"] not in ("", done["author"])
    assert post(reviewer, promote, to="active").status_code == 409
    noun = kind.noun
    actions = AuditEntry.objects.filter(action__startswith=f"{noun}.").values_list("action")
    assert [row[0] for row in actions.order_by("id")] == [f"{noun}.draft", f"{noun}.active"]


@each_kind
@pytest.mark.django_db
def test_a_version_takes_the_place_of_the_one_before(plural: str) -> None:
    kind, name, text = KINDS[plural]
    put_in_force(kind, text)
    put_in_force(kind, f"{text}# again\n")
    assert states(kind, name) == ["retired", "active"]
    client = api_client(Role.VIEWER)
    versions = client.get(f"/api/v1/{plural}/{name}/versions").json()
    assert [(row["number"], row["state"]) for row in versions] == [(2, "active"), (1, "retired")]
    found = client.get(f"/api/v1/{plural}/{name}/diff?old=1&new=2").json()
    assert found["text"].splitlines()[-1] == "+# again"
    assert found["changes"] == []
    assert client.get(f"/api/v1/{plural}/{name}/versions/1").json()["text"] == text
    for missing in ("versions/9", "diff?old=1&new=9"):
        assert client.get(f"/api/v1/{plural}/{name}/{missing}").status_code == 404
    assert client.get(f"/api/v1/{plural}/none/versions").status_code == 404


@each_kind
@pytest.mark.django_db
def test_a_fault_is_told_with_its_place_in_one_shape(plural: str) -> None:
    _, _, text = KINDS[plural]
    operator = api_client(Role.OPERATOR)
    answer = post(operator, f"/api/v1/{plural}", text=f"{text}colour: red\n")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "field", "hint", "line", "column"}
    assert (error["code"], error["field"]) == ("invalid_document", "colour")
    assert (error["line"], error["column"]) == (len(text.splitlines()) + 1, 1)
    check = KINDS[plural][0].noun
    checked = post(api_client(Role.VIEWER), f"/api/v1/{check}-check", text=f"{text}colour: red\n")
    (problem,) = checked.json()["problems"]
    assert {**problem, "code": "invalid_document"} == error
    assert post(operator, f"/api/v1/{check}-check", text=text).json()["problems"] == []


@each_kind
@pytest.mark.django_db
def test_others_read_and_change_nothing(plural: str) -> None:
    kind, name, text = KINDS[plural]
    put_in_force(kind, text)
    for role in (Role.VIEWER, Role.ML_USER, Role.RESPONDER):
        client = api_client(role)
        version = f"/api/v1/{plural}/{name}/versions/1"
        assert post(client, f"/api/v1/{plural}", text=text).status_code == 403
        assert post(client, f"{version}/promote", to="active").status_code == 403
        assert post(client, f"{version}/retire", why="no").status_code == 403
        assert client.get(version).status_code == 200
    assert states(kind, name) == ["active"]


@each_kind
@pytest.mark.django_db
def test_the_database_holds_to_it_without_us(plural: str) -> None:
    kind, name, text = KINDS[plural]
    version = put_in_force(kind, text)
    rows = kind.model.objects.filter(pk=version.pk)
    for changed in ({"text": "x"}, {"author": "x"}, {"number": 9}, {"name": "x"}):
        with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
            rows.update(**changed)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(reviewer=version.author)
    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(reviewer="")
    rows.update(state="retired")
    with pytest.raises(DatabaseError, match="never changes"), transaction.atomic():
        rows.update(state="active")
    assert states(kind, name) == ["retired"]


@each_kind
@pytest.mark.django_db
def test_states_that_a_kind_does_not_know_are_refused(plural: str) -> None:
    kind, name, text = KINDS[plural]
    draft = life.draft(kind, "anna", text)
    for to in set(States) - set(kind.steps):
        with pytest.raises(Refused, match="no state"):
            life.promote(kind, "boris", draft, to)
    assert states(kind, name) == ["draft"]


# --- Two at once ---------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Does something with a connection of its own, and keeps what came of it."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act
        self.done: object = None
        self.refused = ""

    def run(self) -> None:
        try:
            self.done = self._act()
        except Refused as error:
            self.refused = error.message
        finally:
            connection.close()


def until_it_waits() -> None:
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with connection.cursor() as cursor:
        for _ in range(2_000):
            cursor.execute(waits)
            if cursor.fetchone()[0]:
                return
            cursor.execute("SELECT pg_sleep(0.005)")
    raise AssertionError("it does not wait")


@each_kind
@pytest.mark.django_db(transaction=True)
def test_of_two_who_activate_the_same_version_one_is_told(plural: str) -> None:
    kind, name, text = KINDS[plural]
    draft: Version = life.draft(kind, "anna", text)
    late = Writer(lambda: life.promote(kind, "carla", draft, States.ACTIVE))
    with transaction.atomic():
        life.promote(kind, "boris", draft, States.ACTIVE)
        late.start()
        until_it_waits()
    late.join()
    assert late.refused == f"{name} v1 is active already"
    assert kind.model.objects.get(name=name).reviewer == "boris"


@each_kind
@pytest.mark.django_db(transaction=True)
def test_of_two_who_activate_two_versions_one_is_told(plural: str) -> None:
    kind, name, text = KINDS[plural]
    put_in_force(kind, text)
    second = life.draft(kind, "anna", f"{text}# 2\n")
    third = life.draft(kind, "anna", f"{text}# 3\n")
    late = Writer(lambda: life.promote(kind, "carla", third, States.ACTIVE))
    with transaction.atomic():
        life.promote(kind, "boris", second, States.ACTIVE)
        late.start()
        until_it_waits()
    late.join()
    assert late.refused == f"somebody else has just changed what counts of {name}"
    assert states(kind, name) == ["retired", "active", "draft"]


@each_kind
@pytest.mark.django_db(transaction=True)
def test_two_who_write_at_once_get_two_numbers(plural: str) -> None:
    kind, name, text = KINDS[plural]
    late = Writer(lambda: life.draft(kind, "carla", text))
    with transaction.atomic():
        life.draft(kind, "anna", text)
        late.start()
        until_it_waits()
    late.join()
    rows = kind.model.objects.filter(name=name).order_by("number")
    assert list(rows.values_list("number", "author")) == [(1, "anna"), (2, "carla")]


@each_kind
@pytest.mark.django_db(transaction=True)
def test_what_is_retired_while_somebody_activates_it_stays_retired(plural: str) -> None:
    kind, name, text = KINDS[plural]
    draft: Version = life.draft(kind, "anna", text)
    late = Writer(lambda: life.promote(kind, "carla", draft, States.ACTIVE))
    with transaction.atomic():
        life.retire(kind, "boris", draft, why="not needed")
        late.start()
        until_it_waits()
    late.join()
    assert late.refused == f"{name} v1 is retired"
    assert states(kind, name) == ["retired"]


@pytest.mark.django_db
def test_a_text_that_is_no_document_is_not_kept() -> None:
    for kind, _, _ in KINDS.values():
        with pytest.raises(DocumentError):
            life.draft(kind, "anna", "name: [")
        assert not kind.model.objects.exists()
