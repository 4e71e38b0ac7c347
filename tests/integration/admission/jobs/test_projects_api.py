from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry, User
from admission.jobs.models import Attempt, Phase, Project
from admission.policy.catalog import POLICIES
from tests.builders.documents import put_in_force
from tests.integration.admission.jobs.conftest import client_as, now, submit

pytestmark = pytest.mark.django_db
URL = "/api/v1/projects"


@pytest.fixture
def client(operator: User) -> Client:
    return client_as(operator)


def send(client: Client, method: str, path: str, **body: Any) -> Any:
    return getattr(client, method)(path, body, content_type="application/json")


def test_an_operator_adds_a_project_and_changes_it(client: Client, ada: User, bob: User) -> None:
    answer = send(client, "post", URL, name="nlp", gpu_quota=64, members=["ada"])
    assert answer.status_code == 201, answer.content
    row = answer.json()
    assert (row["weight"], row["power_quota_w"], row["members"]) == (1.0, None, ["ada"])
    change = {"weight": 2.5, "gpu_quota": None, "power_quota_w": 5e4, "members": ["bob"]}
    answer = send(client, "patch", f"{URL}/nlp", **change)
    assert answer.status_code == 200, answer.content
    assert {**answer.json(), **change} == answer.json()
    assert list(Project.objects.get(name="nlp").members.all()) == [bob]
    entry = AuditEntry.objects.get(action="project.update")
    assert (entry.target, entry.detail["after"]) == ("nlp", change)
    before = {"weight": 1.0, "gpu_quota": 64, "power_quota_w": None, "members": ["ada"]}
    assert entry.detail["before"] == before


def test_what_is_left_out_of_a_change_stays(client: Client, ada: User) -> None:
    send(client, "patch", f"{URL}/vision", gpu_quota=8)
    project = Project.objects.get(name="vision")
    assert (project.gpu_quota, list(project.members.all())) == (8, [ada])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "Vision"}, "name"),
        ({"name": "vision"}, "name"),
        ({"name": "x", "weight": 0}, "weight"),
        ({"name": "x", "gpu_quota": -1}, "gpu_quota"),
        ({"name": "x", "power_quota_w": -1}, "power_quota_w"),
        ({"name": "x", "members": ["nobody"]}, "members[0]"),
    ],
)
def test_a_bad_project_is_refused_with_its_field(
    client: Client, ada: User, body: dict[str, Any], field: str
) -> None:
    answer = send(client, "post", URL, **body)
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"]["field"].split("[")[0] == field.split("[")[0]


def test_a_project_keeps_its_name(client: Client, ada: User) -> None:
    answer = send(client, "patch", f"{URL}/vision", name="sight")
    assert answer.json()["error"]["field"] == "name"


def test_its_use_is_shown(client: Client, ada: User) -> None:
    submit(ada)
    running = submit(ada).phases.get()
    Phase.objects.filter(pk=running.pk).update(state="running")
    Attempt.objects.create(
        phase=running, number=1, key="x", executor="local", dispatched_at=now(),
        placement={"gpus": {"n1": [0, 1], "n2": [3]}, "total_w": 2100.5},
    )  # fmt: skip
    row = client.get(f"{URL}/vision").json()
    uses = ("gpus_held", "reserved_w", "waiting", "running")
    assert [row[name] for name in uses] == [3, 2100.5, 1, 1]
    (row,) = client.get(URL).json()["results"]
    assert row["gpus_held"] == 3


def test_who_is_no_operator_reads(ada: User) -> None:
    client = client_as(ada)
    assert client.get(URL).status_code == 200
    assert send(client, "post", URL, name="nlp").status_code == 403
    assert send(client, "patch", f"{URL}/vision", gpu_quota=1).status_code == 403


STATED = """\
name: lab
shares:
  organizations: {research: {weight: 3}, products: {weight: 1}}
projects:
  vision: {organization: research, weight: 2, gpu_quota: 16, cohort: lab, may_lend: 4}
  nlp: {organization: research}
"""


def test_what_the_policy_states_counts_in_place_of_its_own(client: Client, ada: User) -> None:
    for name in ("nlp", "shop"):
        send(client, "post", URL, name=name, weight=1.0, gpu_quota=8)
    share = client.get(f"{URL}/vision").json()["share"]
    assert (share["organization"], share["weight"], share["is_stated"]) == ("", 1.0, False)
    assert share["due"] == pytest.approx(1 / 3)
    put_in_force(POLICIES, STATED)
    shares = {name: client.get(f"{URL}/{name}").json()["share"] for name in ("vision", "nlp")}
    assert shares["vision"] == {
        "organization": "research", "weight": 2.0, "is_stated": True,
        # Of research and shop, three quarters; of vision and nlp, two thirds of that.
        "due": pytest.approx(0.75 * 2 / 3), "had": None,
        "gpu_quota": 16, "cohort": "lab", "may_borrow": None, "may_lend": 4,
    }  # fmt: skip
    assert (shares["nlp"]["weight"], shares["nlp"]["gpu_quota"]) == (1.0, 8)
