"""What one user or project may have waiting and submit: for all ways in, and for many at once."""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from accounts.models import AuditEntry, User
from admission.jobs import submission
from admission.jobs.models import Job, Phase, Project, SubmissionPace, UserLimits
from admission.jobs.submission import OverLimit
from admission.policy.catalog import POLICIES
from headroom.jobs.reading import convert
from tests.builders.documents import put_in_force
from tests.integration.admission.jobs.conftest import client_as
from tests.unit.headroom.jobs.specs import make_phase, make_spec

URL = "/api/v1/jobs"


def phases(count: int) -> list[dict[str, Any]]:
    return [make_phase(f"p{index}") for index in range(count)]


def post(client: Client, *of: dict[str, Any], url: str = URL, **headers: str) -> Any:
    return client.post(url, make_spec(*of), content_type="application/json", headers=headers)


def limit(kind: str, settings: Settings, **given: float) -> None:
    """Set limits for all users, or all projects."""
    usual = settings.SUBMISSION_LIMITS
    settings.SUBMISSION_LIMITS = {**usual, kind: {**usual[kind], **given}}


def refused(answer: Any, status: int = 429) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("kind", ["user", "project"])
def test_only_so_many_jobs_wait(ada: User, settings: Settings, kind: str) -> None:
    limit(kind, settings, max_pending_jobs=2)
    client = client_as(ada)
    assert [post(client).status_code for _ in range(2)] == [201, 201]
    answer = post(client)
    found = refused(answer)
    assert found["error"]["code"] == "too_much_waits"
    assert found["limit"] == {
        "of": kind, "name": {"user": "ada", "project": "vision"}[kind], "what": "pending_jobs",
        "limit": 2, "used": 2, "asked": 1, "retry_after_s": 30.0,
    }  # fmt: skip
    assert answer.headers["Retry-After"] == "30"
    assert Job.objects.count() == 2


@pytest.mark.parametrize("kind", ["user", "project"])
def test_only_so_many_phases_wait(ada: User, settings: Settings, kind: str) -> None:
    limit(kind, settings, max_pending_phases=5)
    client = client_as(ada)
    assert post(client, *phases(3)).status_code == 201
    found = refused(post(client, *phases(3)))["limit"]
    assert (found["what"], found["used"], found["asked"]) == ("pending_phases", 3, 3)
    assert post(client, *phases(2)).status_code == 201


def test_what_has_begun_or_ended_makes_room(ada: User, settings: Settings) -> None:
    limit("user", settings, max_pending_jobs=1)
    client = client_as(ada)
    assert post(client).status_code == 201
    refused(post(client))
    Phase.objects.update(state=Phase.State.RUNNING)
    assert post(client).status_code == 201
    name = Job.objects.order_by("-pk").values_list("name", flat=True)[0]
    client.post(f"{URL}/{name}/cancel", {"why": ""}, content_type="application/json")
    assert post(client).status_code == 201


def test_what_went_back_into_the_queue_is_seen_once_it_is_counted_anew(
    ada: User, settings: Settings
) -> None:
    limit("user", settings, max_pending_jobs=3)
    client, long_ago = client_as(ada), timezone.now() - timedelta(seconds=60)
    assert [post(client).status_code for _ in range(2)] == [201, 201]
    Phase.objects.update(state=Phase.State.RUNNING)
    SubmissionPace.objects.update(counted_at=long_ago)
    assert post(client).status_code == 201
    # One waits, by what was counted just now, and not three.
    Phase.objects.update(state=Phase.State.QUEUED)
    assert post(client).status_code == 201
    SubmissionPace.objects.update(counted_at=long_ago)
    assert refused(post(client))["limit"]["used"] == 4


def test_what_waits_is_not_counted_with_each_submission(ada: User) -> None:
    client = client_as(ada)
    with CaptureQueriesContext(connection) as first:
        assert post(client, *phases(2)).status_code == 201
    with CaptureQueriesContext(connection) as second:
        assert post(client, *phases(3)).status_code == 201
    counts = [
        sum("CROSS JOIN LATERAL" in query["sql"] for query in each.captured_queries)
        for each in (first, second)
    ]
    assert counts == [1, 0]
    noted = SubmissionPace.objects.values_list("waiting_jobs", "waiting_phases")
    assert set(noted) == {(2, 5)}


def test_of_a_dry_run_nothing_waits(ada: User, fleet: Any) -> None:
    client = client_as(ada)
    assert post(client).status_code == 201
    assert post(client, *phases(3), url=f"{URL}?dry_run=1").status_code == 200
    assert set(SubmissionPace.objects.values_list("waiting_jobs", "waiting_phases")) == {(1, 1)}


def test_who_may_submit_as_fast_as_they_like_has_only_so_much_waiting(
    ada: User, settings: Settings
) -> None:
    limit("user", settings, submissions_per_s=math.inf, max_pending_jobs=2)
    limit("project", settings, submissions_per_s=math.inf)
    client = client_as(ada)
    assert [post(client).status_code for _ in range(3)] == [201, 201, 429]


def test_a_job_has_only_so_many_phases(ada: User, settings: Settings) -> None:
    limit("project", settings, max_phases_per_job=3)
    answer = post(client_as(ada), *phases(4))
    found = refused(answer, 403)
    assert found["error"]["code"] == "too_many_phases"
    assert "split the job" in found["error"]["hint"]
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize("kind", ["user", "project"])
def test_jobs_come_only_so_fast(ada: User, settings: Settings, kind: str) -> None:
    limit(kind, settings, submissions_per_s=0.2)
    client = client_as(ada)
    assert [post(client).status_code for _ in range(4)] == [201] * 4
    answer = post(client)
    assert refused(answer)["error"]["code"] == "too_many_submissions"
    assert 1 <= int(answer.headers["Retry-After"]) <= 5


def test_a_dry_run_counts_as_a_submission_of_each_phase(
    ada: User, fleet: Any, settings: Settings
) -> None:
    limit("user", settings, submissions_per_s=0.2)
    client = client_as(ada)
    assert post(client, *phases(3), url=f"{URL}?dry_run=1").status_code == 200
    refused(post(client, *phases(3), url=f"{URL}?dry_run=1"))
    assert post(client).status_code == 201
    refused(post(client))


def test_what_was_refused_costs_nothing(ada: User, settings: Settings) -> None:
    limit("user", settings, submissions_per_s=0.2)
    limit("project", settings, max_pending_jobs=1)
    client = client_as(ada)
    assert post(client).status_code == 201
    codes = {refused(post(client))["error"]["code"] for _ in range(6)}
    assert codes == {"too_much_waits"}


def test_the_same_submission_again_is_answered_though_there_is_no_room(
    ada: User, settings: Settings
) -> None:
    limit("user", settings, max_pending_jobs=1)
    client = client_as(ada)
    first = post(client, **{"Idempotency-Key": "k1"})
    again = post(client, **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["name"] == again.json()["name"]
    refused(post(client, **{"Idempotency-Key": "k2"}))


def test_users_do_not_take_each_others_room(ada: User, bob: User, settings: Settings) -> None:
    limit("user", settings, max_pending_jobs=1)
    assert post(client_as(ada)).status_code == 201
    of_bob = {**make_spec(), "project": "speech"}
    answer = client_as(bob).post(URL, of_bob, content_type="application/json")
    assert answer.status_code == 201


def test_a_project_and_a_user_may_have_limits_of_their_own(
    ada: User, operator: User, settings: Settings
) -> None:
    limit("user", settings, max_pending_jobs=1)
    limit("project", settings, max_pending_jobs=1)
    boss, client = client_as(operator), client_as(ada)
    assert post(client).status_code == 201
    for url in ("/api/v1/projects/vision", "/api/v1/users/ada/limits"):
        refused(post(client))
        answer = boss.patch(url, {"max_pending_jobs": 2}, content_type="application/json")
        assert answer.status_code == 200, answer.content
        assert answer.json()["limits"]["max_pending_jobs"] == 2
    assert post(client).status_code == 201
    refused(post(client))
    assert set(AuditEntry.objects.values_list("action", flat=True)) >= {
        "project.update",
        "user.limit",
    }


def test_a_user_sees_the_own_limits_and_changes_none(ada: User, bob: User) -> None:
    client = client_as(ada)
    found = client.get("/api/v1/users/ada/limits").json()
    assert (found["pending_jobs"], found["limits"]["max_pending_jobs"]) == (0, 500)
    assert client.get("/api/v1/users/bob/limits").status_code == 404
    change = {"max_pending_jobs": 10**6}
    answer = client.patch("/api/v1/users/ada/limits", change, content_type="application/json")
    assert answer.status_code == 403
    assert not UserLimits.objects.exists()


@pytest.mark.parametrize("value", [0, -1, "many", 1e9])
def test_a_limit_that_is_none_is_refused(operator: User, ada: User, value: Any) -> None:
    change = {"submissions_per_s": value}
    for url in ("/api/v1/projects/vision", "/api/v1/users/ada/limits"):
        answer = client_as(operator).patch(url, change, content_type="application/json")
        assert answer.status_code == 400
        assert answer.json()["error"]["field"] == "submissions_per_s"


PER_USER = """
name: shared-out
projects:
  vision:
    each_user: {gpus: 8, running: 2, pending_jobs: 1, pending_phases: 20, submissions_per_s: 2}
    user_limits: {bob: {pending_jobs: 2}}
"""


def test_the_policy_limits_what_each_user_of_a_project_has_waiting(ada: User, bob: User) -> None:
    put_in_force(POLICIES, PER_USER)
    Project.objects.get(name="vision").members.add(bob)
    assert post(client_as(ada)).status_code == 201
    found = refused(post(client_as(ada)))
    assert found["limit"]["of"] == "member"
    assert found["limit"]["name"] == "user 'ada' in project 'vision'"
    assert (found["limit"]["limit"], found["limit"]["used"]) == (1, 1)
    assert "pending_jobs in the admission policy" in found["error"]["hint"]
    # What one has waiting is nobody else's, and some may have more.
    assert [post(client_as(bob)).status_code for _ in range(3)] == [201, 201, 429]


def test_the_policy_limits_how_fast_each_user_of_a_project_submits(ada: User, bob: User) -> None:
    rate = PER_USER.replace("submissions_per_s: 2", "submissions_per_s: 0.05")
    put_in_force(POLICIES, rate.replace("pending_jobs: 1", "pending_jobs: 9"))
    Project.objects.get(name="vision").members.add(bob)
    assert [post(client_as(ada)).status_code for _ in range(2)] == [201, 429]
    assert post(client_as(bob)).status_code == 201


def test_a_user_sees_what_the_policy_lets_have_of_a_project(ada: User, bob: User) -> None:
    put_in_force(POLICIES, PER_USER)
    Project.objects.get(name="vision").members.add(bob)
    assert post(client_as(ada)).status_code == 201
    found = client_as(ada).get("/api/v1/projects/vision").json()["per_user"]
    assert found["each"] == found["mine"]["limits"]
    assert found["mine"]["limits"]["gpus"] == 8
    assert found["mine"]["use"] == {
        "gpus": 0, "running": 0, "pending_jobs": 1, "pending_phases": 1,
    }  # fmt: skip
    found = client_as(bob).get("/api/v1/projects/vision").json()["per_user"]
    assert (found["each"]["pending_jobs"], found["mine"]["limits"]["pending_jobs"]) == (1, 2)
    assert found["mine"]["use"]["pending_jobs"] == 0


def test_a_request_names_whose_limits_count(ada: User) -> None:
    assert post(client_as(ada)).status_code == 201
    assert Phase.objects.get().request["user"] == "ada"


def test_the_page_of_projects_shows_what_each_user_may_have(client: Client, ada: User) -> None:
    put_in_force(POLICIES, PER_USER)
    client.force_login(ada)
    page = " ".join(client.get("/classes/").content.decode().split())
    assert "each user 8 GPUs and 2 phases at once, 1 job and 20 phases that wait" in page


def test_the_page_of_projects_shows_what_may_wait(client: Client, ada: User) -> None:
    Project.objects.filter(name="vision").update(max_pending_phases=777)
    client.force_login(ada)
    assert "of 777" in " ".join(client.get("/classes/").content.decode().split())


@pytest.mark.parametrize("kind", ["user", "project"])
def test_submissions_at_once_do_not_pass_the_limit_together(
    committed: User, settings: Settings, kind: str
) -> None:
    limit(kind, settings, max_pending_jobs=5)
    begin, taken, refusals = threading.Barrier(8), [], []

    def submit() -> None:
        begin.wait()
        for _ in range(3):
            try:
                spec = convert(make_spec())
                taken.append(submission.submit(spec, committed, now=timezone.now()).job.pk)
            except OverLimit as error:
                refusals.append(error.code)
        connection.close()

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refusals)) == (5, 19)
    assert Job.objects.count() == 5
