from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry, User
from admission.jobs import catalog
from admission.jobs.catalog import CLASSES
from admission.jobs.models import ClassVersion, Phase
from admission.jobs.resolution import request_of
from policies.documents import life
from tests.builders.documents import grant
from tests.integration.admission.jobs.conftest import client_as, submit

pytestmark = pytest.mark.django_db
URL = "/api/v1/classes"
NAME = "low-power-experimentation"


@pytest.fixture
def client(operator: User) -> Client:
    return client_as(operator)


def draft(client: Client, text: str) -> Any:
    return client.post(URL, {"text": text}, content_type="application/json")


def put(client: Client, text: str, name: str = NAME) -> None:
    """Add a version, and have somebody else let it count."""
    answer = draft(client, text)
    assert answer.status_code == 201, answer.content
    version = ClassVersion.objects.get(name=name, number=answer.json()["number"])
    life.promote(CLASSES, "boris", version, "active")


def test_the_built_in_classes_are_listed(ada: User) -> None:
    rows = client_as(ada).get(URL).json()
    assert len(rows) == 7
    (row,) = [each for each in rows if each["name"] == NAME]
    assert (row["number"], row["author"], row["priority"]) == (0, "", -10)
    assert row["defaults"]["power"]["lowest_cap_w"] == 300
    assert row["text"].startswith(f"name: {NAME}\n")


def test_a_version_takes_the_place_of_the_one_before(client: Client) -> None:
    text = client.get(f"{URL}/{NAME}").json()["text"]
    for number, priority in ((1, -20), (2, -30)):
        put(client, text.replace("priority: -10", f"priority: {priority}"))
        row = client.get(f"{URL}/{NAME}").json()
        assert (row["number"], row["priority"], row["author"]) == (number, priority, "olga")
    assert catalog.current()[NAME].priority == -30
    for verb in ("draft", "active"):
        found = AuditEntry.objects.filter(action=f"class.{verb}", target__startswith=NAME)
        assert found.count() == 2


def test_a_draft_changes_nothing(client: Client) -> None:
    text = client.get(f"{URL}/{NAME}").json()["text"]
    assert draft(client, text.replace("priority: -10", "priority: 5")).json()["state"] == "draft"
    assert catalog.current()[NAME].priority == -10
    own = client.post(
        f"{URL}/{NAME}/versions/1/promote", {"to": "active"}, content_type="application/json"
    )
    assert own.status_code == 409


def test_a_retired_version_gives_way_to_the_built_in_one(client: Client, ada: User) -> None:
    job = submit(ada)
    put(client, f"name: {NAME}\npriority: 7\n")
    assert request_of(job.phases.get()).priority == 7
    url = f"{URL}/{NAME}/versions/1/retire"
    assert client.post(url, {"why": "no"}, content_type="application/json").status_code == 200
    assert request_of(job.phases.get()).priority == -10


def test_a_class_that_nothing_takes_the_place_of_stays(client: Client) -> None:
    put(client, "name: nightly\n", "nightly")
    answer = client.post(
        f"{URL}/nightly/versions/1/retire", {"why": "no"}, content_type="application/json"
    )
    assert answer.status_code == 409
    assert "max_running" in answer.json()["error"]["message"]
    assert "nightly" in catalog.current()


def test_jobs_that_wait_follow_their_class_and_those_that_run_do_not(
    client: Client, ada: User
) -> None:
    grant("vision", "latency-sensitive-inference-build")
    waiting, running, other = (
        submit(ada),
        submit(ada),
        submit(ada, **{"class": "latency-sensitive-inference-build"}),
    )
    Phase.objects.filter(job=running).update(state="running")
    put(client, f"name: {NAME}\npriority: 7\ndefaults: {{power: {{lowest_cap_w: 200}}}}\n")
    found = {
        job.pk: (request.priority, request.lowest_cap_w)
        for job in (waiting, running, other)
        for request in [request_of(job.phases.get())]
    }
    assert found == {waiting.pk: (7, 200.0), running.pk: (-10, 300.0), other.pk: (40, None)}


def test_a_class_of_ones_own_may_be_added(client: Client, ada: User) -> None:
    put(client, "name: nightly\npriority: -50\n", "nightly")
    job = submit(ada, **{"class": "nightly"})
    assert request_of(job.phases.get()).priority == -50
    assert client.get(f"{URL}/nightly").json()["number"] == 1


@pytest.mark.parametrize(
    ("text", "field"),
    [(f"name: {NAME}\nmax_gpus: -1\n", "max_gpus"), ("a: *b\n", "")],
)
def test_a_bad_class_is_refused_with_its_field(client: Client, text: str, field: str) -> None:
    answer = draft(client, text)
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"]["field"] == field


def test_who_is_no_operator_reads(ada: User) -> None:
    assert draft(client_as(ada), f"name: {NAME}\n").status_code == 403
    assert client_as(ada).get(f"{URL}/nothing").status_code == 404
