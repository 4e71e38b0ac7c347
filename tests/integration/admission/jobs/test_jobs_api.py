from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from django.test import Client

from accounts.models import User
from accounts.roles import Role
from admission.jobs.models import Job, Phase
from admission.queue import queue_status
from admission.queue.queue_status import PendingStatus, QueueStatus
from fleet.models import Site
from headroom.jobs.reading import MOST_BYTES
from tests.builders.accounts import api_client, make_user
from tests.builders.checkpoints import make_fact
from tests.builders.fleet import SmallFleet
from tests.integration.admission.jobs.conftest import chain, client_as, now, submit
from tests.json_schema import validator
from tests.unit.headroom.jobs.specs import make_phase, make_spec

pytestmark = pytest.mark.django_db
URL = "/api/v1/jobs"


@pytest.fixture
def client(ada: User) -> Client:
    return client_as(ada)


def post(client: Client, path: str, body: Any = None, **given: Any) -> Any:
    return client.post(path, body or {}, content_type="application/json", **given)


def error(answer: Any, status: int = 400) -> dict[str, str]:
    assert answer.status_code == status, answer.content
    found: dict[str, str] = answer.json()["error"]
    return found


def test_a_job_is_submitted_in_json_and_in_yaml(client: Client) -> None:
    answer = post(client, URL, make_spec(*chain("a", "b"), name="first"))
    assert answer.status_code == 201, answer.content
    row = answer.json()
    assert (row["name"], row["project"], row["state"]) == ("first", "vision", "queued")
    assert [each["state"] for each in row["phases"]] == ["queued", "waiting"]
    text = yaml.safe_dump(make_spec(name="second"))
    for kind in ("application/yaml", "application/x-yaml", "text/yaml; charset=utf-8"):
        again = client.post(URL, text, content_type=kind, headers={"Idempotency-Key": "one"})
        assert again.json()["name"] == "second"
        assert again.status_code in (200, 201)
    assert Job.objects.count() == 2


def test_a_key_answers_with_the_same_job(client: Client) -> None:
    headers = {"Idempotency-Key": "night-7"}
    first = post(client, URL, make_spec(), headers=headers)
    again = post(client, URL, make_spec(), headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["name"] == again.json()["name"]


def test_a_bad_specification_is_refused_with_path_and_way_out(client: Client) -> None:
    answer = post(client, URL, make_spec(make_phase(gang={"gpus": -8})))
    found = error(answer)
    assert (found["code"], found["field"]) == ("invalid_field", "phases[0].gang.gpus")
    two = make_phase(gang={"gpus": 8, "min_gpus": 9}, env={"HEADROOM_X": ""})
    answer = post(client, URL, make_spec(two))
    assert error(answer)["hint"] == "ask for more, or lower min_gpus"
    assert [each["code"] for each in answer.json()["errors"]] == ["out_of_order", "reserved"]


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"a: &a [1]\nb: [*a, *a]", "application/yaml", "malformed_body"),
        (b"x: " + b"y" * 10_000_000, "application/yaml", "too_large"),
        (b'{"x": "' + b"y" * MOST_BYTES + b'"}', "application/json", "too_large"),
        (b"{", "application/json", "malformed_body"),
        (b"", "application/json", "malformed_body"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(
    client: Client, body: bytes, kind: str, code: str
) -> None:
    found = error(client.post(URL, body, content_type=kind))
    assert found["code"] == code
    assert found["hint"]
    assert not Job.objects.exists()


def test_other_media_types_are_refused(client: Client) -> None:
    answer = client.post(URL, b"x", content_type="text/plain")
    assert error(answer, 415)["code"] == "unsupported_media_type"


def test_a_name_that_is_taken_is_a_conflict(client: Client) -> None:
    post(client, URL, make_spec(name="first"))
    found = error(post(client, URL, make_spec(name="first")), 409)
    assert found["code"] == "name_taken"


@pytest.mark.parametrize("role", [Role.VIEWER, Role.RESPONDER])
def test_who_only_watches_submits_and_cancels_nothing(ada: User, role: Role) -> None:
    job = submit(ada)
    watcher = api_client(role)
    assert post(watcher, URL, make_spec()).status_code == 403
    assert post(watcher, f"{URL}/{job.name}/cancel").status_code == 403
    assert watcher.get(f"{URL}/{job.name}").status_code == 200


def test_command_and_environment_are_shown_to_the_project_alone(ada: User, bob: User) -> None:
    job = submit(ada, make_phase(command=["train"], env={"TOKEN": "secret"}))
    whole = client_as(ada).get(f"{URL}/{job.name}").json()
    assert whole["spec"]["phases"][0]["env"] == {"TOKEN": "secret"}
    for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
        answer = api_client(role).get(f"{URL}/{job.name}")
        assert answer.status_code == 200
        assert b"secret" not in answer.content
        assert answer.json()["spec"]["phases"][0]["gang"] == {"gpus": 8}
    assert client_as(bob).get(f"{URL}/{job.name}").status_code == 404
    assert post(client_as(bob), f"{URL}/{job.name}/cancel").status_code == 404


def test_a_job_says_which_of_its_checkpoints_is_whole_at_which_site(
    client: Client, bob: User
) -> None:
    post(client, URL, make_spec(name="trains"))
    assert client.get(f"{URL}/trains").json()["checkpoints"] == []
    oslo, bergen = (Site.objects.get_or_create(name=name)[0] for name in ("oslo", "bergen"))
    make_fact("trains", oslo, step=90)
    make_fact("trains", bergen, step=60, lag_steps=30, lag_s=12.5, sent_bytes_per_s=2e8)
    make_fact("others", oslo)
    there, here = client.get(f"{URL}/trains").json()["checkpoints"]
    assert (here["site"], here["step"], here["lag_s"], here["bytes"]) == ("oslo", 90, None, 10**9)
    assert (there["site"], there["lag_steps"], there["lag_s"]) == ("bergen", 30, 12.5)
    assert there["sent_bytes_per_s"] == 2e8
    assert there["verified_at"] is not None
    assert client_as(bob).get(f"{URL}/trains").status_code == 404


def test_jobs_are_listed_the_newest_first_and_filtered(ada: User, bob: User) -> None:
    first, second = submit(ada, name="first"), submit(ada, name="second")
    submit(bob, name="theirs", project="speech")
    first.phases.update(reason="FeedPowerHeadroom")
    Job.objects.filter(pk=second.pk).update(state="failed")

    def names(query: str, user: User = ada) -> list[str]:
        answer = client_as(user).get(f"{URL}?{query}")
        assert answer.status_code == 200, answer.content
        return [row["name"] for row in answer.json()["results"]]

    assert names("") == ["second", "first"]
    assert names("open=1") == ["first"]
    assert names("state=failed") == ["second"]
    assert names("waiting_for=FeedPowerHeadroom") == ["first"]
    assert names("job_class=low-power-experimentation&project=vision") == ["second", "first"]
    watcher = make_user(Role.VIEWER)
    assert names("project=speech", watcher) == ["theirs"]


def test_people_hold_release_and_cancel(client: Client, ada: User) -> None:
    job = submit(ada)
    held = post(client, f"{URL}/{job.name}/hold", {"why": "a look"}).json()
    assert (held["phases"][0]["held_by"], held["phases"][0]["hold_reason"]) == ("ada", "a look")
    released = post(client, f"{URL}/{job.name}/release")
    assert released.json()["phases"][0]["held_by"] == ""
    assert error(post(client, f"{URL}/{job.name}/release"), 409)["code"] == "not_held"
    assert post(client, f"{URL}/{job.name}/cancel").json()["state"] == "cancelled"
    assert error(post(client, f"{URL}/{job.name}/cancel"), 409)["code"] == "ended"


def test_a_job_is_amended_and_its_priority_set(client: Client, ada: User) -> None:
    job = submit(ada)
    change = {"phase": "train", "gpus": 4, "lowest_cap_w": 250}
    row = post(client, f"{URL}/{job.name}/amend", change).json()
    assert (row["revision"], row["phases"][0]["gpus"]) == (2, 4)
    assert post(client, f"{URL}/{job.name}/priority", {"priority": -5}).json()["priority"] == -5
    assert error(post(client, f"{URL}/{job.name}/amend", {"phase": "train"}))["code"] == (
        "unknown_change"
    )
    assert error(post(client, f"{URL}/{job.name}/priority", {"priority": 500}))["field"] == (
        "priority"
    )


def test_its_history_is_told_the_newest_first(client: Client, ada: User, bob: User) -> None:
    job = submit(ada)
    post(client, f"{URL}/{job.name}/cancel", {"why": "a typo"})
    rows = client.get(f"{URL}/{job.name}/events").json()["results"]
    assert [row["kind"] for row in rows] == ["ended", "cancelled", "submitted"]
    assert rows[1]["text"] == "Cancelled by ada: a typo"
    assert client_as(bob).get(f"{URL}/{job.name}/events").status_code == 404


# --- Why ------------------------------------------------------------------------------------------


def test_a_dry_run_takes_the_same_way_and_leaves_nothing(client: Client, fleet: SmallFleet) -> None:
    answer = post(client, f"{URL}?dry_run=1", make_spec(*chain("a", "b")))
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert [(each["phase"], each["after"]) for each in found["phases"]] == [("a", []), ("b", ["a"])]
    # Nothing has ever been read of this fleet, and no machine of it runs jobs.
    assert found["phases"][0]["starts"] is False
    assert found["phases"][0]["reasons"][0]["sentence"]
    bad = post(client, f"{URL}?dry_run=1", make_spec(project="nlp"))
    assert error(bad)["field"] == "project"
    assert not Job.objects.exists()


def test_a_job_is_explained_with_what_the_last_cycle_said(
    client: Client, ada: User, fleet: SmallFleet
) -> None:
    job = submit(ada, *chain("a", "b"))
    answer = client.get(f"{URL}/{job.name}/explain")
    assert answer.status_code == 200, answer.content
    first, second = answer.json()["phases"]
    assert (first["phase"], first["reasons"][0]["token"] != "", first["estimate"]) == (
        "a", True, None,
    )  # fmt: skip
    assert second["reasons"][0]["token"] == "DependencyPending"
    put_up(f"{job.name}/a")
    first = client.get(f"{URL}/{job.name}/explain").json()["phases"][0]
    assert first["estimate"]["p50_s"] == 60.0


def test_a_job_that_does_not_wait_needs_no_explanation(client: Client, ada: User) -> None:
    job = submit(ada)
    job.phases.update(state=Phase.State.RUNNING)
    assert client.get(f"{URL}/{job.name}/explain").json()["phases"] == []


def put_up(*keys: str) -> None:
    """Publish a queue in which ``keys`` wait, in this order."""
    at = now().timestamp()
    head = QueueStatus(cycle=1, at=at, waiting=len(keys), running=0, admitted=0)
    queue_status.publish(
        head,
        {
            key: PendingStatus(position, (), p10_s=30.0, p50_s=60.0, p90_s=90.0, basis="playing on")
            for position, key in enumerate(keys, 1)
        },
    )


def test_the_queue_is_in_order_and_hides_the_names_of_others(ada: User, bob: User) -> None:
    ours, theirs = submit(ada, name="ours"), submit(bob, name="theirs", project="speech")
    put_up("theirs/train", "ours/train", "gone/train")
    answer = client_as(ada).get("/api/v1/queue").json()
    assert answer["waiting"] == 3
    first, second = answer["queue"]
    assert (first["position"], first["job"], first["what"]) == (1, None, "a job of another project")
    assert (first["job_class"], first["gpus"], first["estimate"]) == (theirs.job_class, 8, None)
    assert (second["position"], second["job"]) == (2, ours.name)
    assert second["estimate"]["p90_s"] == 90.0
    rest = client_as(ada).get("/api/v1/queue?first=2&count=1").json()["queue"]
    assert [row["job"] for row in rest] == ["ours"]
    whole = api_client(Role.RESPONDER).get("/api/v1/queue").json()["queue"]
    assert [row["job"] for row in whole] == ["theirs", "ours"]


def test_an_empty_queue_is_shown_too(client: Client) -> None:
    answer = client.get("/api/v1/queue").json()
    assert answer == {"at": None, "waiting": 0, "running": 0, "counts": [], "queue": []}


@pytest.mark.parametrize("query", ["first=0", "count=1001", "count=x", "first=-1"])
def test_a_window_that_there_is_not_is_refused(client: Client, query: str) -> None:
    assert error(client.get(f"/api/v1/queue?{query}"))["field"] == query.partition("=")[0]


# --- The schema -----------------------------------------------------------------------------------


def test_the_schema_takes_what_the_server_takes(client: Client) -> None:
    answer = client.get("/api/v1/schemas/job-spec")
    assert answer["Content-Type"].startswith("application/schema+json")
    schema = json.loads(answer.content)
    held_to = validator(schema)
    held_to.validate(make_spec(*chain("a", "b"), name="x"))
    for wrong in (make_spec(make_phase(gang={"gpus": -1})), make_spec(color="red")):
        assert not held_to.is_valid(wrong)
