"""The admission policy on the server: in force, refused, and beside what is decided as a shadow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.core import policy
from admission.core.policy import AdmissionPolicy
from admission.jobs import catalog
from admission.policy import shadowing
from admission.policy.catalog import POLICIES, policy_in_force
from admission.policy.models import AdmissionPolicyVersion, ShadowDecision, ShadowProgress
from policies.documents import life
from policies.documents.models import States
from tests.builders.accounts import api_client, make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_project
from tests.integration.admission.cycle.scenes import attempts, cycle, phase_of, queued

ONE_AT_A_TIME = "name: narrow\nadmission: {tuning: {depth: 1}}\n"
URL = "/api/v1/admission-policies"


def post(client: Client, url: str, **body: Any) -> Any:
    return client.post(url, body, content_type="application/json")


def shadow(text: str) -> AdmissionPolicyVersion:
    return life.promote(POLICIES, "anna", life.draft(POLICIES, "anna", text), States.SHADOW)


# --- In force ------------------------------------------------------------------------------------


def test_without_a_version_what_comes_with_us_is_in_force() -> None:
    assert policy_in_force() == AdmissionPolicy()
    shown = api_client().get("/api/v1/admission-policy").json()
    assert (shown["name"], shown["number"]) == ("headroom", 0)
    assert policy.for_server(shown["text"]).tuning == AdmissionPolicy().tuning


def test_the_cycle_decides_by_the_version_in_force(fleet: SmallFleet) -> None:
    put_in_force(POLICIES, ONE_AT_A_TIME)
    queued("first", gpus=4)
    queued("second", gpus=4)
    assert cycle().admitted == 1
    version = AdmissionPolicyVersion.objects.get()
    life.retire(POLICIES, "boris", version, why="too narrow")
    queued("third", gpus=4)
    assert cycle().admitted == 2


def test_one_policy_is_in_force_whatever_its_name() -> None:
    put_in_force(POLICIES, ONE_AT_A_TIME)
    put_in_force(POLICIES, "name: wide\n")
    (active,) = AdmissionPolicyVersion.objects.active()
    assert active.name == "wide"
    assert AdmissionPolicyVersion.objects.get(name="narrow").state == "retired"


def test_a_text_that_this_release_does_not_take_admits_all_the_same() -> None:
    now = timezone.now()
    AdmissionPolicyVersion.objects.create(
        name="old", number=1, text="name: old\nmore: 1\n", state="active", author="ada",
        reviewer="bob", created_at=now, changed_at=now,
    )  # fmt: skip
    assert policy_in_force() == AdmissionPolicy()


@pytest.mark.parametrize("job_class", ["checkpoint-heavy", "low-power-experimentation"])
def test_a_project_uses_the_classes_that_it_may(job_class: str) -> None:
    put_in_force(POLICIES, "name: a\nprojects: {vision: {classes: [checkpoint-heavy]}}\n")
    make_project("vision")
    user = make_user(Role.OPERATOR)
    spec = {
        "version": 1, "name": "one", "project": "vision", "class": job_class,
        "phases": [{"name": "train", "gang": {"gpus": 1}, "walltime_s": 60,
                    "command": ["true"]}],
    }  # fmt: skip
    assert catalog.for_submission(user, "vision").allowed == frozenset({"checkpoint-heavy"})
    answer = api_client(Role.OPERATOR).post(
        "/api/v1/jobs?dry_run=1", spec, content_type="application/json"
    )
    found = [each for each in _errors(answer) if each["code"] == "class_not_allowed"]
    assert bool(found) == (job_class != "checkpoint-heavy"), answer.json()
    for each in found:
        assert each["field"] == "class"
        assert each["hint"] == (
            "take one of: checkpoint-heavy; or ask an operator to grant it in the admission"
            " policy, as projects.vision.granted"
        )


def test_a_class_that_has_others_give_way_is_granted_by_a_policy_that_two_have_seen() -> None:
    make_project("search")
    user, build = make_user(Role.OPERATOR), "latency-sensitive-inference-build"
    assert build not in catalog.for_submission(user, "search").allowed
    put_in_force(POLICIES, f"name: a\nprojects: {{search: {{granted: [{build}]}}}}\n")
    assert catalog.for_submission(user, "search").allowed == set(catalog.current())
    put_in_force(POLICIES, "name: a\nopen_classes: [checkpoint-heavy]\n")
    assert catalog.for_submission(user, "search").allowed == {"checkpoint-heavy"}


def _errors(answer: Any) -> list[dict[str, Any]]:
    body = answer.json()
    found: list[dict[str, Any]] = body.get("errors", [body["error"]] if "error" in body else [])
    return found


# --- Shadows -------------------------------------------------------------------------------------


def test_a_shadow_says_what_it_would_have_decided_otherwise(fleet: SmallFleet) -> None:
    version = shadow(ONE_AT_A_TIME)
    queued("first", gpus=4)
    queued("second", gpus=4)
    assert cycle().admitted == 2
    assert sorted(attempts()) == ["first/train/1", "second/train/1"]
    (row,) = ShadowDecision.objects.all()
    assert (row.phase.job.name, row.kind) == ("second", "wait")
    assert row.decided.startswith("begins on 4 GPUs in oslo/A0")
    assert row.otherwise
    reader = api_client(Role.ML_USER)
    shown = reader.get(f"{URL}/narrow/versions/{version.number}/shadow").json()
    assert (shown["cycles"], shown["jobs"], shown["jobs_otherwise"]) == (1, 2, 1)
    assert shown["decisions"] == []  # who is in no project sees no job


def test_whoever_sees_the_jobs_sees_where(fleet: SmallFleet) -> None:
    shadow(ONE_AT_A_TIME)
    queued("first", gpus=4)
    queued("second", gpus=4)
    cycle()
    shown = api_client(Role.OPERATOR).get(f"{URL}/narrow/versions/1/shadow").json()
    assert [(each["job"], each["kind"]) for each in shown["decisions"]] == [("second", "wait")]


def test_a_shadow_would_have_refused_what_it_does_not_let_a_project_use(
    fleet: SmallFleet,
) -> None:
    shadow("name: strict\nprojects: {vision: {classes: [checkpoint-heavy]}}\n")
    queued("first", gpus=4)
    assert cycle().admitted == 1
    (row,) = ShadowDecision.objects.all()
    assert (row.kind, row.decided[:6]) == ("refuse", "begins")
    assert row.otherwise.startswith("project vision may not use class ")


def test_a_shadow_that_says_the_same_has_nothing_to_tell(fleet: SmallFleet) -> None:
    shadow("name: same\n")
    queued("first", gpus=4)
    queued("large", gpus=400)
    cycle()
    assert not ShadowDecision.objects.exists()
    assert ShadowProgress.objects.get().cycles == 1


def test_what_it_says_again_is_counted_and_not_repeated(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadowing, "_REST", 0.0)
    put_in_force(POLICIES, ONE_AT_A_TIME)
    shadow("name: wide\n")
    queued("first", gpus=400)
    queued("second", gpus=4)
    for _ in range(3):
        cycle()
    assert phase_of("second").state == "queued"
    (row,) = ShadowDecision.objects.filter(phase__job__name="second", kind="start")
    assert (row.cycles, row.first_at < row.last_at) == (3, True)


def test_a_draft_is_not_asked_and_nothing_comes_of_a_shadow(fleet: SmallFleet) -> None:
    life.draft(POLICIES, "anna", ONE_AT_A_TIME)
    queued("first", gpus=4)
    queued("second", gpus=4)
    assert cycle().admitted == 2
    assert not ShadowProgress.objects.exists()


def test_a_slow_shadow_is_asked_more_seldom(fleet: SmallFleet) -> None:
    version = shadow(ONE_AT_A_TIME)
    ShadowProgress.objects.create(
        version=version, since=timezone.now(), asked_at=timezone.now(), cycles=1, took_s=60.0
    )
    queued("first", gpus=4)
    cycle()
    assert ShadowProgress.objects.get().cycles == 1


def test_what_is_older_than_a_day_is_forgotten(fleet: SmallFleet) -> None:
    shadow(ONE_AT_A_TIME)
    queued("first", gpus=4)
    queued("second", gpus=4)
    cycle()
    assert shadowing.prune(timezone.now() + timedelta(hours=23)) == 0
    assert shadowing.prune(timezone.now() + timedelta(hours=25)) == 1


def test_a_shadow_with_another_quantile_reserves_by_what_was_drawn(fleet: SmallFleet) -> None:
    shadow("name: median\nadmission: {reserve: {quantile: 0.5}}\n")
    queued("first", gpus=4)
    cycle()
    queued("second", gpus=4)
    cycle()
    assert ShadowProgress.objects.get().cycles >= 1


# --- Through the API -----------------------------------------------------------------------------


def test_a_policy_is_drafted_shadowed_by_its_author_and_activated_by_another() -> None:
    author, reviewer = api_client(Role.OPERATOR), api_client(Role.OPERATOR)
    assert post(author, URL, text=ONE_AT_A_TIME, note="less at once").status_code == 201
    version = f"{URL}/narrow/versions/1"
    assert post(author, f"{version}/promote", to="shadow").json()["state"] == "shadow"
    assert post(author, f"{version}/promote", to="active").status_code == 409
    assert post(reviewer, f"{version}/promote", to="canary").status_code == 400
    assert post(reviewer, f"{version}/promote", to="active").json()["state"] == "active"
    shown = author.get("/api/v1/admission-policy").json()
    assert (shown["name"], shown["number"], shown["text"]) == ("narrow", 1, ONE_AT_A_TIME)
    assert [row["name"] for row in author.get(URL).json()] == ["narrow"]
    refused = post(author, URL, text="name: x\nadmission: {reads_live: true}\n")
    assert refused.status_code == 400
    assert refused.json()["error"]["field"] == "admission.reads_live"
