"""The form that makes and changes projects: rights, faults, what is kept, and the audit log."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from unittest.mock import patch

import pytest
from django.test import Client

from accounts.models import AuditEntry, User
from accounts.roles import Role
from admission.allocation import open_attempts
from admission.jobs.models import Project
from admission.policy.catalog import POLICIES
from fleet import snapshot
from tests.builders.accounts import client_of, make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

NEW = "/projects/_new/"
CHANGE = "/projects/_change/vision/"
PAGE = "/projects/vision/"
API = "/api/v1/projects"
MAY_NOT = (Role.VIEWER, Role.ML_USER, Role.RESPONDER)


@pytest.fixture(autouse=True)
def fleet(small: SmallFleet) -> None:
    open_attempts.invalidate()
    snapshot.invalidate()


@pytest.fixture
def ada(db: None) -> User:
    return make_user(Role.ML_USER, username="ada")


@pytest.fixture
def vision(ada: User) -> Project:
    made = Project.objects.create(name="vision", gpu_quota=64, power_quota_w=150_000.0)
    made.members.add(ada)
    return made


@pytest.fixture
def operator(db: None) -> Client:
    client = Client()
    client.force_login(make_user(Role.OPERATOR, username="olga"))
    return client


def opened(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return html_of(response)


def shown(client: Client, path: str) -> dict[str, str]:
    """Return what a browser sends of a form that nobody has touched."""
    html = client.get(path).content.decode()
    found = {}
    for tag in re.findall(r"<input[^>]*>", html):
        given = {key: unescape(value) for key, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if "name" in given and given["name"] not in ("csrfmiddlewaretoken", "q"):
            found[given["name"]] = given.get("value", "")
    for name, text in re.findall(r'<textarea name="(\w+)"[^>]*>\n?(.*?)</textarea>', html, re.S):
        found[name] = unescape(text)
    return {name: value.replace("\n", "\r\n") for name, value in found.items()}


def send(client: Client, path: str, **given: str) -> Any:
    return client.post(path, {**shown(client, path), **given})


def field_of(html: str, name: str) -> str:
    """Return the words of the block of one field."""
    start = html.index(f'<label for="id_{name}"')
    return text_of(html[start : html.index('<div class="toolbar"', start)].split("<label for=")[1])


# --- Who may -------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", MAY_NOT)
def test_others_may_not_and_see_no_link(vision: Project, role: Role) -> None:
    client = client_of(role)
    for path in (NEW, CHANGE):
        assert client.get(path).status_code == 403
        assert client.post(path, {"name": "nlp", "gpu_quota": "1"}).status_code == 403
    assert NEW not in opened(client, "/classes/")
    if role != Role.ML_USER:  # who does not see the project at all
        assert CHANGE not in opened(client, PAGE)
    assert list(Project.objects.values_list("name", "gpu_quota")) == [("vision", 64)]


def test_a_member_may_not_change_the_own_project(ada: User, vision: Project) -> None:
    client = Client()
    client.force_login(ada)
    assert CHANGE not in opened(client, PAGE)
    assert client.post(CHANGE, {"gpu_quota": "512"}).status_code == 403


def test_who_is_not_logged_in_is_asked_to(vision: Project) -> None:
    assert Client().get(CHANGE)["Location"].startswith("/login/")


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_who_may_is_led_there(vision: Project, role: Role) -> None:
    client = client_of(role)
    assert f'href="{NEW}"' in opened(client, "/classes/")
    assert f'href="{CHANGE}"' in opened(client, PAGE)
    opened(client, NEW)
    opened(client, CHANGE)


def test_a_form_of_another_site_is_refused(vision: Project) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(Role.OPERATOR))
    for path in (NEW, CHANGE):
        assert client.post(path, {"name": "nlp", "gpu_quota": "1"}).status_code == 403
    assert list(Project.objects.values_list("name", "gpu_quota")) == [("vision", 64)]


def test_a_project_that_is_not_there_is_not_found(operator: Client) -> None:
    assert operator.get("/projects/_change/nlp/").status_code == 404


# --- What is made and changed --------------------------------------------------------------------


def test_a_project_is_made_as_by_the_api_with_the_same_entry(operator: Client, ada: User) -> None:
    answer = send(
        operator, NEW, name="nlp", weight="2.5", gpu_quota="64", members="ada\r\n\r\nada\r\n"
    )
    assert (answer.status_code, answer["Location"]) == (302, "/projects/nlp/")
    assert "Project nlp is made." in text_of(opened(operator, "/projects/nlp/"))
    body = {"name": "asr", "weight": 2.5, "gpu_quota": 64, "members": ["ada"]}
    assert operator.post(API, body, content_type="application/json").status_code == 201
    by_page, by_api = (operator.get(f"{API}/{name}").json() for name in ("nlp", "asr"))
    assert by_page == {**by_api, "name": "nlp"}
    mine, its = AuditEntry.objects.filter(action="project.create").order_by("pk")
    assert (mine.actor, mine.target, its.target) == ("olga", "nlp", "asr")
    differs = {"name": "nlp", "id": mine.detail["after"].get("id")}
    assert {**mine.detail["after"], **differs} == {**its.detail["after"], **differs}


def test_empty_fields_mean_what_they_say(operator: Client) -> None:
    assert send(operator, NEW, name="nlp", weight="").status_code == 302
    made = Project.objects.get()
    assert (made.weight, made.gpu_quota, made.power_quota_w) == (1.0, None, None)
    assert (made.max_pending_jobs, made.submissions_per_s, made.members.count()) == (None, None, 0)


def test_a_change_is_kept_with_the_entry_of_the_api(operator: Client, vision: Project) -> None:
    make_user(Role.ML_USER, username="bob")
    answer = send(operator, CHANGE, gpu_quota="32", power_quota_w="", members="bob\r\nada")
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    by_page = AuditEntry.objects.get(action="project.update")
    row = Project.objects.get()
    assert (row.gpu_quota, row.power_quota_w, row.members.count()) == (32, None, 2)
    row.gpu_quota, row.power_quota_w = 64, 150_000.0
    row.save()
    row.members.set(User.objects.filter(username="ada"))
    change = {"gpu_quota": 32, "power_quota_w": None, "members": ["ada", "bob"]}
    operator.patch(f"{API}/vision", change, content_type="application/json")
    by_api = AuditEntry.objects.filter(action="project.update").latest("pk")
    assert (by_page.actor, by_page.target) == (by_api.actor, by_api.target) == ("olga", "vision")
    assert by_page.detail["before"] == by_api.detail["before"]
    assert {**by_page.detail["after"], "members": 2} == {**by_api.detail["after"], "members": 2}
    assert set(by_page.detail["after"]["members"]) == set(by_api.detail["after"]["members"])


def test_what_is_left_alone_is_not_written(operator: Client, vision: Project) -> None:
    assert send(operator, CHANGE).status_code == 302
    assert not AuditEntry.objects.filter(action="project.update").exists()


def test_its_name_is_not_asked_for_again(operator: Client, vision: Project) -> None:
    assert 'name="name"' not in opened(operator, CHANGE)
    assert send(operator, CHANGE, name="sight", gpu_quota="8").status_code == 302
    assert Project.objects.get().name == "vision"


def test_what_another_changed_meanwhile_stays(operator: Client, vision: Project) -> None:
    was_shown = shown(operator, CHANGE)
    Project.objects.update(gpu_quota=16, weight=3.0)
    # As by the API, the last one counts of what both change, and nothing else is touched.
    assert operator.post(CHANGE, {**was_shown, "weight": "2"}).status_code == 302
    row = Project.objects.get()
    assert (row.gpu_quota, row.weight) == (16, 2.0)


def test_of_two_that_make_one_name_at_once_the_second_is_refused(operator: Client) -> None:
    given = shown(operator, NEW)
    Project.objects.create(name="nlp")
    unseen = patch(
        "admission.jobs.api.serializers.ProjectSerializer.validate_name", lambda self, name: name
    )
    with unseen:
        answer = operator.post(NEW, {**given, "name": "nlp"})
        by_api = operator.post(API, {"name": "nlp"}, content_type="application/json")
    assert (answer.status_code, by_api.status_code) == (400, 400)
    assert "There is a project of this name." in field_of(html_of(answer), "name")
    assert by_api.json()["error"]["field"] == "name"
    assert not AuditEntry.objects.filter(action="project.create").exists()


# --- What is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "typed", "words"),
    [
        ("weight", "0", "greater than or equal to 1e-06"),
        ("weight", "nan", "A valid number is required."),
        ("gpu_quota", "many", "A valid integer is required."),
        ("gpu_quota", "-1", "greater than or equal to 0"),
        ("power_quota_w", "-5", "greater than or equal to 0"),
        ("members", "ada\nzoe", "There is no active user zoe."),
        ("max_pending_jobs", "1.5", "A valid integer is required."),
        ("submissions_per_s", "0", "greater than or equal to 0.01"),
        ("description", "x" * 501, "no more than 500 characters"),
    ],
)
def test_what_is_wrong_is_told_at_its_field_and_what_was_typed_stays(
    operator: Client, vision: Project, field: str, typed: str, words: str
) -> None:
    answer = send(operator, CHANGE, max_phases_per_job="7", **{field: typed})
    assert answer.status_code == 400
    html = answer.content.decode()
    assert words in unescape(field_of(html_of(answer), field))
    assert html.count('class="errorlist"') == 1
    assert typed in html
    assert re.search(r'name="max_phases_per_job" value="7"', html)
    assert Project.objects.filter(gpu_quota=64, max_phases_per_job=None).exists()
    assert not AuditEntry.objects.filter(action="project.update").exists()


@pytest.mark.parametrize("name", ["", "Vision", "vision", "a/b", "_new", "x" * 61])
def test_a_bad_name_is_told_at_its_field(operator: Client, vision: Project, name: str) -> None:
    answer = send(operator, NEW, name=name, gpu_quota="8")
    assert answer.status_code == 400
    html = html_of(answer)
    assert 'class="errorlist" id="id_name_error"' in html
    assert 'name="gpu_quota" value="8"' in html
    assert Project.objects.count() == 1


def test_an_inactive_user_is_no_member(operator: Client, vision: Project) -> None:
    make_user(Role.ML_USER, username="eve", is_active=False)
    answer = send(operator, CHANGE, members="ada\neve")
    assert "There is no active user eve." in field_of(html_of(answer), "members")


def test_a_fault_that_is_put_right_changes_no_more_than_was_typed(
    operator: Client, vision: Project
) -> None:
    answer = send(operator, CHANGE, weight="x")
    Project.objects.update(gpu_quota=16)
    with patch.object(Client, "get", lambda self, path: answer):
        again = shown(operator, CHANGE)
    assert operator.post(CHANGE, {**again, "weight": "4"}).status_code == 302
    row = Project.objects.get()
    assert (row.weight, row.gpu_quota) == (4.0, 16)


def test_what_is_typed_is_escaped(operator: Client) -> None:
    evil = '"><script>alert(1)</script>'
    html = send(operator, NEW, name=evil, members=evil, description=evil).content.decode()
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_names_with_markup_and_slashes_are_escaped_and_reached(operator: Client) -> None:
    name = "<b>a/b</b>" + "x" * 50
    Project.objects.create(name=name, description="<i>")
    link = re.search(r'href="(/projects/_change/[^"]+)"', opened(operator, f"/projects/{name}/"))
    assert link is not None
    html = opened(operator, unescape(link[1]))
    assert "<b>a/b" not in html
    assert "&lt;b&gt;a/b" in html


# --- What is said --------------------------------------------------------------------------------


def test_what_is_held_stands_beside_each_quota(operator: Client, vision: Project) -> None:
    job = make_job()
    make_attempt(job.phases.get(), {"oslo-a01-n1": [0, 1, 2]}, placement={"total_w": 2100.0})
    html = opened(operator, CHANGE)
    assert "It holds 3 of 64 GPUs now." in field_of(html, "gpu_quota")
    assert "It reserves 2.1 of 150.0 kW now." in field_of(html, "power_quota_w")
    assert "1 of 1,000 wait now." in field_of(html, "max_pending_jobs")
    assert "empty: no limit" in field_of(html, "gpu_quota")
    assert "empty: as is usual, 4,000." in field_of(html, "max_pending_phases")
    assert "Where a quota is made smaller, what runs goes on" in text_of(html)


def test_without_a_quota_what_is_held_is_told_alone(operator: Client, vision: Project) -> None:
    Project.objects.update(gpu_quota=None, power_quota_w=None)
    html = opened(operator, CHANGE)
    assert "It holds 0 GPUs now." in field_of(html, "gpu_quota")
    assert "It reserves 0.0 kW now." in field_of(html, "power_quota_w")


def test_large_numbers_are_written_out(operator: Client, vision: Project) -> None:
    Project.objects.update(max_pending_jobs=4_000_000, power_quota_w=2e9)
    html = opened(operator, CHANGE)
    assert "0 of 4,000,000 wait now." in field_of(html, "max_pending_jobs")
    assert 'name="power_quota_w" value="2000000000"' in html


def test_what_the_policy_states_in_their_place_is_told(operator: Client, vision: Project) -> None:
    put_in_force(POLICIES, "name: lab\nprojects: {vision: {weight: 2, gpu_quota: 16}}\n")
    html = opened(operator, CHANGE)
    assert "It holds 0 of 16 GPUs now. The admission policy states 16" in (
        field_of(html, "gpu_quota")
    )
    assert "The admission policy states 2" in field_of(html, "weight")
