from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry, User
from admission.jobs import catalog
from admission.jobs.models import Phase
from admission.jobs.requests import request_of
from tests.integration.admission.jobs.conftest import client_as, submit

pytestmark = pytest.mark.django_db
URL = "/api/v1/classes"
NAME = "low-power-experimentation"


@pytest.fixture
def client(operator: User) -> Client:
    return client_as(operator)


def put(client: Client, text: str, name: str = NAME) -> Any:
    return client.put(f"{URL}/{name}", {"text": text}, content_type="application/json")


def test_the_built_in_classes_are_listed(ada: User) -> None:
    rows = client_as(ada).get(URL).json()
    assert len(rows) == 5
    (row,) = [each for each in rows if each["name"] == NAME]
    assert (row["number"], row["author"], row["priority"]) == (0, "", -10)
    assert row["defaults"]["power"]["lowest_cap_w"] == 300
    assert row["text"].startswith(f"name: {NAME}\n")


def test_a_version_takes_the_place_of_the_one_before(client: Client) -> None:
    text = client.get(f"{URL}/{NAME}").json()["text"]
    for number, priority in ((1, -20), (2, -30)):
        answer = put(client, text.replace("priority: -10", f"priority: {priority}"))
        assert answer.status_code == 200, answer.content
        row = answer.json()
        assert (row["number"], row["priority"], row["author"]) == (number, priority, "olga")
    assert catalog.current()[NAME].priority == -30
    assert AuditEntry.objects.filter(action="class.write", target=NAME).count() == 2


def test_jobs_that_wait_follow_their_class_and_those_that_run_do_not(
    client: Client, ada: User
) -> None:
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
    [("name: x\n", "name"), (f"name: {NAME}\nmax_gpus: -1\n", "max_gpus"), ("a: *b\n", "text")],
)
def test_a_bad_class_is_refused_with_its_field(client: Client, text: str, field: str) -> None:
    answer = put(client, text)
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"]["field"] == field


def test_who_is_no_operator_reads(ada: User) -> None:
    assert put(client_as(ada), f"name: {NAME}\n").status_code == 403
    assert client_as(ada).get(f"{URL}/nothing").status_code == 404
