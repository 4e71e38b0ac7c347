"""Jobs that are submitted together are as those that are submitted alone, and cost less."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.forms.models import model_to_dict
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from accounts import audit_chain
from accounts.models import ApiToken, AuditEntry, User
from accounts.roles import Role
from admission.jobs import submission
from admission.jobs.api import posts
from admission.jobs.api.posts import Post
from admission.jobs.models import Job, JobEvent, Phase, Project
from admission.jobs.saving import NewJob
from admission.jobs.submission import OverLimit, Submission, submit_all
from headroom.jobs.reading import convert
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.integration.admission.jobs.conftest import chain, make_project, now
from tests.integration.admission.jobs.test_limits import limit
from tests.unit.headroom.jobs.specs import make_phase, make_spec

URL = "/api/v1/jobs"


def of(user: User, *phases: dict[str, Any], key: str = "", **spec: Any) -> Submission:
    return Submission(convert(make_spec(*phases, **spec)), user, now(), key)


def taken(*given: Submission) -> list[bool]:
    return [each is not None for each in submit_all(given)]


def written() -> list[int]:
    return [model.objects.count() for model in (Job, Phase, JobEvent, AuditEntry)]


def rows(job: Job) -> list[dict[str, Any]]:
    """Return all that is kept of a job, without what no two have alike."""
    entry = AuditEntry.objects.get(target=job.name)
    found = [job, *job.phases.all(), *job.events.all(), entry]
    told = [msgspec.json.encode(model_to_dict(row)).decode() for row in found]
    own = {"id", "job", "at", "submitted_at", "queued_at"}
    plain = [msgspec.json.decode(text.replace(job.name, "NAME")) for text in told]
    for row in plain:
        if "request" in row:
            row["request"].pop("submitted_at")
        for state in (row.get("detail") or {}).values():
            if isinstance(state, dict):
                # That of a specification with another name.
                state.pop("spec")
                state.pop("submitted_at")
    return [{name: each[name] for name in each.keys() - own} for each in plain]


@pytest.mark.django_db
def test_jobs_submitted_together_are_kept_as_each_alone_is(ada: User, fleet: SmallFleet) -> None:
    given = {"priority": -3, "labels": {"team": "ä"}}
    alone = convert(make_spec(*chain("a", "b"), name="alone", **given))
    submission.submit(alone, ada, now=now(), idempotency_key="k1")
    assert taken(of(ada, *chain("a", "b"), name="one", key="k2", **given), of(ada, name="two"))
    one, other = rows(Job.objects.get(name="one")), rows(Job.objects.get(name="alone"))
    for row in (*one, *other):
        row.pop("idempotency_key", None)
        for state in (row.get("detail") or {}).values():
            if isinstance(state, dict):
                state.pop("idempotency_key")
    assert one == other


@pytest.mark.django_db
def test_what_is_returned_has_the_keys_that_were_given(ada: User) -> None:
    for new in submit_all([of(ada, *chain("a", "b")), of(ada)]):
        assert new is not None
        kept = Job.objects.get(name=new.job.name)
        assert model_to_dict(kept) == model_to_dict(new.job)
        assert [model_to_dict(each) for each in kept.phases.all()] == [
            model_to_dict(each) for each in new.phases
        ]


@pytest.mark.django_db
def test_more_jobs_are_no_more_queries(
    ada: User, fleet: SmallFleet, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    submit_all([of(ada)])
    for count in (1, 5):
        given = [of(ada) for _ in range(count)]
        with django_assert_num_queries(5):
            assert taken(*given) == [True] * count


@pytest.mark.django_db
def test_the_first_that_have_room_are_taken_and_each_counts_for_all(
    ada: User, bob: User, settings: Settings
) -> None:
    limit("user", settings, max_pending_phases=3)
    of_bob = of(bob, project="speech")
    given = [of(ada, *chain("a", "b")), of(ada, *chain("a", "b")), of_bob, of(ada), of(ada)]
    assert taken(*given) == [True, False, True, True, False]


@pytest.mark.django_db
def test_what_waits_of_others_takes_nobodys_room(ada: User, bob: User, settings: Settings) -> None:
    limit("user", settings, max_pending_jobs=2)
    assert taken(of(ada), of(ada), of(bob, project="speech")) == [True] * 3
    assert taken(of(bob, project="speech"), of(ada)) == [True, False]


@pytest.mark.django_db
def test_what_is_left_out_costs_nobody_anything(ada: User, bob: User, settings: Settings) -> None:
    limit("user", settings, submissions_per_s=0.2)
    given = [*(of(ada) for _ in range(5)), of(bob, project="speech")]
    assert taken(*given) == [False] * 5 + [True]
    assert taken(*(of(ada) for _ in range(3))) == [True] * 3
    # A single one is left of what ada may submit at once.
    assert taken(of(ada), of(ada)) == [False, False]
    assert taken(of(ada)) == [True]
    assert taken(of(ada)) == [False]


@pytest.mark.django_db
def test_a_bucket_that_is_full_holds_no_more_than_it_does(ada: User, settings: Settings) -> None:
    limit("user", settings, submissions_per_s=0.01)
    assert taken(of(ada), of(ada)) == [False, False]
    assert taken(of(ada)) == [True]


@pytest.mark.django_db
def test_a_name_or_a_key_is_taken_once(ada: User, bob: User) -> None:
    given = [of(ada, name="a"), of(ada, name="a"), of(ada, key="k"), of(ada, key="k")]
    assert taken(*given) == [True, False, True, False]
    assert written() == [2, 2, 2, 2]
    assert taken(of(ada, name="a"), of(ada, key="k"), of(ada, name="b")) == [False, False, True]
    assert taken(of(bob, project="speech", key="k")) == [True]


@pytest.mark.django_db
def test_what_has_to_be_looked_at_alone_is_left_out(ada: User, operator: User) -> None:
    viewer = make_user(Role.VIEWER)
    before = written()
    assert not any(
        taken(
            of(ada, project="speech"),
            of(ada, **{"class": "none"}),
            of(ada, priority=5),
            of(ada, make_phase(gang={"gpus": 8, "models": ["no-such"]})),
            of(ada, array="0-9"),
            of(ada, needs=[{"job": "other", "when": "succeeded"}]),
            of(ada, begin_by="2099-01-01T00:00:00Z"),
            of(viewer),
        )
    )
    assert written() == before
    assert taken(of(operator, priority=5)) == [True]


# --- As requests ---------------------------------------------------------------------------------


def post(secret: str, key: str = "", **spec: Any) -> Post:
    return Post(secret, key, msgspec.json.encode(make_spec(**spec)), "192.0.2.7")


@pytest.mark.django_db
def test_the_answer_is_that_of_the_long_way(ada: User) -> None:
    secret = make_token(ada)
    (found,) = posts.take_all([post(secret, name="fast", labels={"a": "ä"})])
    assert found is not None
    assert found.user_id == ada.pk
    spec = make_spec(name="long", labels={"a": "ä"})
    answer = Client(headers=bearer(secret)).post(URL, spec, content_type="application/json")
    fast, long = msgspec.json.decode(found.body), answer.json()
    assert list(fast) == list(long)
    assert fast["name"] == "fast"
    assert fast["phases"][0].keys() == long["phases"][0].keys()
    for name in ("project", "job_class", "labels", "state", "spec", "array"):
        assert fast.get(name) == long.get(name) or name == "spec"
    said = dict(posts.HEADERS)
    assert said == {name: answer.headers[name] for name in said}


@pytest.mark.django_db
def test_only_good_posts_are_taken(ada: User, bob: User) -> None:
    secret, revoked, other = make_token(ada), make_token(ada), make_token(bob)
    ApiToken.objects.filter(digest=ApiToken.objects.with_secret(revoked).get().digest).update(
        revoked_at=now()
    )
    User.objects.filter(pk=bob.pk).update(is_active=False)
    given = [
        post(secret), post(revoked), post(other, project="speech"), post("hru_unknown"),
        Post(secret, "", b"{", None), Post(secret, "", b"{}", None), post(secret),
    ]  # fmt: skip
    assert [each is not None for each in posts.take_all(given)] == [True, *[False] * 5, True]
    assert Job.objects.count() == 2


@pytest.mark.django_db
def test_a_token_for_less_submits_nothing(ada: User) -> None:
    _, secret = ApiToken.issue(ada, "reads", scope=[])
    assert posts.take_all([post(secret)]) == [None]


@pytest.mark.django_db
def test_the_use_of_a_token_is_noted(ada: User) -> None:
    _, secret = ApiToken.issue(ada, "new")
    assert posts.take_all([post(secret), post(secret)]) != [None, None]
    assert ApiToken.objects.with_secret(secret).get().last_used_from == "192.0.2.7"


@pytest.mark.django_db
def test_where_postgres_refuses_something_all_are_handed_on(ada: User) -> None:
    secret = make_token(ada)
    assert posts.take_all([post(secret), post(secret, key="\0")]) == [None, None]
    assert not Job.objects.exists()


GOOD = {"authorization": "Bearer hru_x", "content-type": "application/json", "host": "testserver"}


@pytest.mark.parametrize(
    "changed",
    [
        {"authorization": "Bearer hra_of-an-agent"},
        {"authorization": ""},
        {"content-type": "application/yaml"},
        {"content-encoding": "gzip"},
        {"accept": "text/html"},
        {"host": "elsewhere.example"},
    ],
)
def test_a_request_that_is_no_plain_submission_is_django_s(changed: dict[str, str]) -> None:
    assert posts.is_one("POST", URL, "", GOOD)
    assert posts.is_one("POST", URL, "", GOOD | {"accept": "application/json"})
    assert not posts.is_one("POST", URL, "", GOOD | changed)
    assert not posts.is_one("GET", URL, "", GOOD)
    assert not posts.is_one("POST", URL, "dry_run=1", GOOD)
    assert not posts.is_one("POST", f"{URL}/a/cancel", "", GOOD)


# --- Many at once --------------------------------------------------------------------------------


def test_groups_and_single_ones_at_once_do_not_pass_a_limit_together(
    committed: User, settings: Settings
) -> None:
    limit("user", settings, max_pending_jobs=7)
    begin = threading.Barrier(6)
    found: list[NewJob | None] = []

    def together() -> None:
        begin.wait()
        for _ in range(3):
            found.extend(submit_all([of(committed), of(committed)]))
        connection.close()

    def alone() -> None:
        begin.wait()
        for _ in range(3):
            try:
                submission.submit(convert(make_spec()), committed, now=now())
            except OverLimit:
                continue
        connection.close()

    threads = [threading.Thread(target=each) for each in [together, alone] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Job.objects.count() == 7
    # What was left out in a group may have room alone, and no audit entry is in no chain.
    assert audit_chain.verify().position == AuditEntry.objects.count()


def test_two_groups_that_hold_the_same_in_another_order_do_not_wait_for_each_other(
    committed: User,
) -> None:
    bob = make_user(Role.ML_USER, username="bob")
    make_project("speech", bob)
    for name in ("vision", "speech"):
        Project.objects.get(name=name).members.add(committed, bob)
    begin = threading.Barrier(2)
    found: list[NewJob | None] = []

    def submit(first: User, second: User) -> None:
        begin.wait()
        for _ in range(20):
            found.extend(submit_all([of(first), of(second, project="speech")]))
        connection.close()

    orders = ((committed, bob), (bob, committed))
    threads = [threading.Thread(target=submit, args=each) for each in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in found
    assert Job.objects.count() == len(found) == 80
