"""Saved views: kept by user, shared by operators, of our own pages alone; and what is mine."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry, SavedView, User
from accounts.roles import Role
from accounts.saved_views import actions
from dashboard.views import queue
from policies.incidents.models import Incident
from tests.builders.accounts import client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.lively import make_lively


@pytest.fixture
def lively(db: None) -> SmallFleet:
    return make_lively()


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def save(client: Client, **given: str) -> Any:
    asked = {"page": "queue", "name": "mine, waiting", "query": "mine=jobs", **given}
    return client.post("/views/save", asked)


def test_a_view_is_saved_listed_opened_and_deleted_by_its_owner(lively: SmallFleet) -> None:
    client = client_of(Role.ML_USER)
    name = "n" * 200
    answer = save(client, name=name, query="state=running&mine=jobs&hide=queue-running.class")
    assert answer.status_code == 302
    url = "/queue/?mine=jobs&state=running&hide=queue-running.class"
    assert answer["Location"] == url
    row = SavedView.objects.get()
    page = client.get(url).content.decode()
    assert f'id="view-{row.pk}"' in page
    assert 'aria-current="true"' in page.partition(f'id="view-{row.pk}"')[2][:600]
    assert client.post(f"/views/{row.pk}/delete").status_code == 302
    assert not SavedView.objects.exists()
    told = AuditEntry.objects.filter(action__startswith="saved_view.").order_by("pk")
    assert [each.action for each in told] == ["saved_view.save", "saved_view.delete"]
    assert told[0].detail["after"]["query"] == row.query


def test_saving_under_a_name_again_replaces_that_view(lively: SmallFleet) -> None:
    client = client_of(Role.ML_USER)
    save(client)
    save(client, query="state=ended")
    assert SavedView.objects.get().query == "state=ended"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"page": "nowhere"}, "page"),
        ({"query": "next=https://elsewhere.example"}, "query"),
        ({"query": "table=queue-waiting&format=csv"}, "query"),
        ({"query": "state=nonsense"}, "query"),
        ({"query": "search=%E2%80%AEevil"}, "query"),
        ({"query": "search=" + "x" * 2_000}, "query"),
        ({"name": "  "}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"shared": "1"}, "shared"),
    ],
)
def test_what_may_not_be_saved_is_refused_by_the_name_of_its_field(
    db: None, given: dict[str, str], field: str
) -> None:
    answer = save(client_of(Role.ML_USER), **given)
    assert answer.status_code == 400
    assert answer.content.decode().startswith(f"{field}: ")
    assert not SavedView.objects.exists()


def test_operators_share_and_others_see_but_do_not_delete(lively: SmallFleet) -> None:
    save(client_of(Role.OPERATOR), name="of all", shared="1")
    save(client_of(Role.OPERATOR), name="own")
    shared = SavedView.objects.get(name="of all")
    reader = client_of(Role.VIEWER)
    page = reader.get("/queue/").content.decode()
    assert f'id="view-{shared.pk}"' in page
    assert f'id="view-{SavedView.objects.get(name="own").pk}"' not in page
    assert f'id="view-{shared.pk}"' not in reader.get("/incidents/").content.decode()
    assert reader.post(f"/views/{shared.pk}/delete").status_code == 404
    assert SavedView.objects.filter(pk=shared.pk).exists()


def test_a_shared_view_that_may_name_a_job_or_project_is_for_who_sees_all_jobs(
    lively: SmallFleet,
) -> None:
    operator = client_of(Role.OPERATOR)
    save(operator, name="one", query="search=llama-ft-12", shared="1")
    save(operator, name="two", query="project=vision", shared="1")
    save(operator, name="waits for llama-ft-12/train", query="state=running", shared="1")
    page = client_of(Role.ML_USER).get("/queue/").content.decode()
    assert "llama-ft-12" not in page
    assert 'id="view-' not in page
    page = client_of(Role.VIEWER).get("/queue/").content.decode()
    assert page.count('id="view-') == 3


def test_there_is_an_end_to_how_many_one_keeps(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_VIEWS", 1)
    client = client_of(Role.VIEWER)
    assert save(client).status_code == 302
    assert save(client, query="").status_code == 302, "the same one again"
    assert save(client, name="another").status_code == 400


def test_a_stranger_saves_nothing(client: Client, db: None) -> None:
    assert save(client).status_code == 302
    assert not SavedView.objects.exists()


# --- Mine ----------------------------------------------------------------------------------------


def names(client: Client, query: str) -> list[str]:
    queue.shared.invalidate()
    found = client.get(f"/queue/?table=queue-waiting&format=json&{query}").json()
    return sorted(row["job"].partition("/")[0] for row in found["rows"])


def test_my_jobs_and_those_of_my_projects_in_the_queue(lively: SmallFleet) -> None:
    from admission.jobs.models import Job, Project

    user = make_user(Role.OPERATOR)
    Project.objects.get(name="speech").members.add(user)
    Job.objects.filter(name="llama-ft-12").update(submitted_by=user.username)
    client = signed_in(user)
    assert names(client, "mine=jobs") == ["llama-ft-12"]
    of_projects = names(client, "mine=projects")
    assert "whisper-eval-7" in of_projects
    assert "llama-ft-12" not in of_projects
    assert client.get("/queue/?mine=theirs").status_code == 400
    assert client.get("/queue/?state=ended&mine=jobs").status_code == 200


def test_incidents_that_i_own_or_have_acknowledged(lively: SmallFleet) -> None:
    user = make_user(Role.OPERATOR)
    first, second, *_ = Incident.objects.unresolved().order_by("pk")
    Incident.objects.filter(pk=first.pk).update(assignee=user.username)
    Incident.objects.filter(pk=second.pk).update(
        acknowledged_by=user.username, acknowledged_at=timezone.now()
    )
    Incident.objects.exclude(pk__in=[first.pk, second.pk]).update(assignee="", acknowledged_by="")
    client = signed_in(user)
    found = client.get("/incidents/?mine=1&table=incidents&format=json").json()["rows"]
    assert sorted(row["number"] for row in found) == sorted([first.number, second.number])


def test_restrictions_that_i_made(lively: SmallFleet) -> None:
    from policies.restrictions.models import Restriction

    user = make_user(Role.OPERATOR)
    row = Restriction.objects.in_force(timezone.now()).latest("pk")
    Restriction.objects.filter(pk=row.pk).update(owner=f"user:{user.username}")
    client = signed_in(user)
    found = client.get("/restrictions/?mine=1&table=in-force&format=json").json()["rows"]
    assert [each["what"] for each in found] == [row.kind]
