"""``/api/v1/rules``: who may do what, and what is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.documents import life
from policies.rules import builtin
from policies.rules.actions import RULES
from policies.rules.models import RuleEpisode, RuleProgress, RuleReplay, RuleVersion
from tests.builders.accounts import api_client

pytestmark = pytest.mark.django_db

RULE = """name: rack-hot
scope: rack
severity: warning
summary: "Rack {name} has a GPU at {hottest_c}"
when: hottest_c > 80.0
for: 4s
clear: hottest_c < 75.0
clear_for: 4s
effects:
  - restrict: {kind: no_new_launches}
"""
VERSION = "/api/v1/rules/rack-hot/versions/1"


@pytest.fixture
def author() -> Client:
    return api_client(Role.OPERATOR)


@pytest.fixture
def reviewer() -> Client:
    return api_client(Role.OPERATOR)


def post(client: Client, url: str, **body: Any) -> Any:
    return client.post(url, body, content_type="application/json")


def draft(client: Client, text: str = RULE) -> Any:
    return post(client, "/api/v1/rules", text=text, note="try it")


def test_a_draft_is_made_from_a_text(author: Client) -> None:
    answer = draft(author)
    assert answer.status_code == 201
    body = answer.json()
    assert (body["name"], body["number"], body["state"]) == ("rack-hot", 1, "draft")
    assert body["text"] == RULE
    assert draft(author, RULE.replace("80.0", "81.0")).json()["number"] == 2
    assert AuditEntry.objects.filter(action="rule.draft").count() == 2


def test_a_draft_may_be_the_body_itself(author: Client) -> None:
    answer = author.post("/api/v1/rules", RULE, content_type="application/yaml")
    assert answer.status_code == 201


def test_what_is_wrong_is_told_with_line_and_column(author: Client) -> None:
    text = RULE.replace("hottest_c > 80.0", "hotest_c > 80.0").replace("{hottest_c}", "{hot}")
    answer = draft(author, text)
    assert answer.status_code == 400
    first, second = answer.json()["errors"]
    assert (first["line"], first["column"], first["field"]) == (5, 7, "when")
    assert "hotest_c" in first["message"]
    assert first["hint"].startswith("did you mean hottest_c")
    assert (second["line"], second["field"]) == (4, "summary")
    assert not RuleVersion.objects.exists()


@pytest.mark.parametrize(
    "text", ["", "[", "a: b", "- 1", "x" * 70_000, "name: [" * 3000, "\x00", "&a [*a]"]
)
def test_no_text_does_any_harm(author: Client, text: str) -> None:
    assert draft(author, text).status_code == 400


def test_a_text_can_be_checked_by_anybody_and_is_not_kept() -> None:
    viewer = api_client(Role.VIEWER)
    answer = post(viewer, "/api/v1/rule-check", text=RULE)
    assert answer.json() == {"problems": [], "looks_at": ["hottest_c"]}
    answer = post(viewer, "/api/v1/rule-check", text=RULE.replace("80.0", "80"))
    (problem,) = answer.json()["problems"]
    assert (problem["line"], problem["column"]) == (5, 17)
    assert not RuleVersion.objects.exists()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
def test_others_may_look_and_change_nothing(author: Client, role: Role) -> None:
    draft(author)
    other = api_client(role)
    assert other.get("/api/v1/rules").status_code == 200
    assert other.get(VERSION).status_code == 200
    assert draft(other).status_code == 403
    assert post(other, f"{VERSION}/promote", to="shadow").status_code == 403
    assert post(other, f"{VERSION}/retire", why="no").status_code == 403
    assert Client().get("/api/v1/rules").status_code == 401


def test_an_author_cannot_have_a_version_count(author: Client, reviewer: Client) -> None:
    draft(author)
    assert post(author, f"{VERSION}/promote", to="shadow").status_code == 200
    for to in ("canary", "active"):
        answer = post(author, f"{VERSION}/promote", to=to)
        assert answer.status_code == 409
        assert "somebody else" in answer.json()["error"]["message"]
    assert post(reviewer, f"{VERSION}/promote", to="canary", share=0.2).json()["share"] == 0.2
    answer = post(reviewer, f"{VERSION}/promote", to="active").json()
    assert answer["state"] == "active"
    assert answer["share"] is None
    assert answer["reviewer"] not in ("", answer["author"])
    entry = AuditEntry.objects.get(action="rule.active")
    assert entry.detail["author"] == answer["author"]


@pytest.mark.parametrize(
    "body",
    [
        {"to": "draft"},
        {"to": "retired"},
        {"to": "canary", "share": 0},
        {"to": "canary", "share": 1},
        {"to": "canary", "share": "half"},
        {},
    ],
)
def test_a_step_that_cannot_be_is_refused(
    author: Client, reviewer: Client, body: dict[str, Any]
) -> None:
    draft(author)
    assert post(reviewer, f"{VERSION}/promote", **body).status_code == 400
    assert RuleVersion.objects.get().state == "draft"


def test_versions_never_go_back(author: Client, reviewer: Client) -> None:
    draft(author)
    post(reviewer, f"{VERSION}/promote", to="active")
    for to in ("shadow", "canary", "active"):
        assert post(reviewer, f"{VERSION}/promote", to=to).status_code == 409
    assert post(author, f"{VERSION}/retire", why="done").json()["state"] == "retired"
    assert post(reviewer, f"{VERSION}/promote", to="active").status_code == 409
    assert post(author, f"{VERSION}/retire", why="again").status_code == 409


def test_a_new_active_version_retires_the_old_one(author: Client, reviewer: Client) -> None:
    draft(author)
    post(reviewer, f"{VERSION}/promote", to="active")
    draft(author, RULE.replace("80.0", "81.0"))
    post(reviewer, "/api/v1/rules/rack-hot/versions/2/promote", to="active")
    found = reviewer.get("/api/v1/rules/rack-hot/versions").json()
    assert [(each["number"], each["state"]) for each in found] == [(2, "active"), (1, "retired")]
    (listed,) = reviewer.get("/api/v1/rules").json()["results"]
    assert [each["number"] for each in listed["versions"]] == [2]
    assert listed["firing"] == 0


def test_two_versions_are_compared(author: Client) -> None:
    draft(author)
    draft(author, "# a comment\n" + RULE.replace("hottest_c > 80.0", "hottest_c > 82.0"))
    found = author.get("/api/v1/rules/rack-hot/diff?old=1&new=2").json()
    assert "-when: hottest_c > 80.0\n+when: hottest_c > 82.0" in found["text"]
    assert found["changes"] == [
        {"path": "when", "old": "hottest_c > 80.0", "new": "hottest_c > 82.0"}
    ]
    assert author.get("/api/v1/rules/rack-hot/diff?old=1&new=9").status_code == 404
    assert author.get("/api/v1/rules/rack-hot/diff?old=1").status_code == 400
    assert author.get("/api/v1/rules/rack-hot/diff?old=-1&new=x").status_code == 400


def test_what_is_under_way_is_listed(author: Client, reviewer: Client) -> None:
    draft(author)
    post(reviewer, f"{VERSION}/promote", to="active")
    scopes = {"oslo/r1": [1, 1000.0, None, None], "oslo/r2": [3, 900.0, 910.0, 990.0]}
    RuleProgress.objects.update(scopes=scopes)
    found = author.get("/api/v1/rules/rack-hot/state").json()
    assert [(each["scope_name"], each["phase"]) for each in found] == [
        ("oslo/r1", "pending"),
        ("oslo/r2", "clearing"),
    ]
    assert found[0]["since"] == "1970-01-01T00:16:40Z"
    assert found[0]["fired_at"] is None


def test_episodes_are_found_by_rule_and_scope(author: Client) -> None:
    draft(author)
    now = datetime.now(UTC)
    for name in ("oslo/r1", "oslo/r2"):
        RuleEpisode.objects.create(
            version=RuleVersion.objects.get(), rule="rack-hot", mode="active", scope_kind="rack",
            scope_name=name, severity="warning", since=now, fired_at=now, summary="hot",
            cleared_at=now if name.endswith("2") else None,
        )  # fmt: skip
    url = "/api/v1/rule-episodes"
    assert len(author.get(url).json()["results"]) == 2
    (found,) = author.get(f"{url}?rule=rack-hot&open=1").json()["results"]
    assert (found["scope_name"], found["version"]) == ("oslo/r1", 1)
    assert author.get(f"{url}?rule=other").json()["results"] == []
    (rule,) = author.get("/api/v1/rules").json()["results"]
    assert rule["firing"] == 1


def test_a_replay_is_asked_for(author: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("policies.rules.tasks.replay.delay", asked.append)
    draft(author)
    end = datetime.now(UTC)
    answer = post(
        author, f"{VERSION}/replay", start=(end - timedelta(hours=1)).isoformat(),
        end=end.isoformat(),
    )  # fmt: skip
    assert answer.status_code == 202
    assert asked == [RuleReplay.objects.get().pk]
    found = author.get(f"/api/v1/rule-replays/{asked[0]}").json()
    assert (found["rule"], found["version"], found["state"]) == ("rack-hot", 1, "waiting")
    bad = post(author, f"{VERSION}/replay", start=end.isoformat(), end=end.isoformat())
    assert bad.status_code == 400


def test_what_is_not_there_is_not_found(author: Client) -> None:
    assert author.get("/api/v1/rules/nothing").status_code == 404
    assert author.get("/api/v1/rules/nothing/state").status_code == 404
    assert author.get("/api/v1/rules/nothing/versions/1").status_code == 404
    assert author.get("/api/v1/rules/nothing/versions/99999999999999999999").status_code == 404
    assert post(author, "/api/v1/rules/nothing/versions/1/promote", to="active").status_code == 404


# --- What comes with us --------------------------------------------------------------------------


def test_built_in_rules_are_brought_once_and_count() -> None:
    brought = builtin.load()
    assert len(brought) == len(builtin.texts()) >= 15
    assert builtin.load() == []
    versions = RuleVersion.objects.all()
    assert {row.state for row in versions} == {"active"}
    assert {(row.author, row.reviewer) for row in versions} == {("headroom", "system")}


def test_a_built_in_rule_that_people_have_changed_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = dict(list(builtin.texts().items())[:3])
    monkeypatch.setattr(builtin, "texts", lambda: texts)
    builtin.load()
    changed, retired, untouched = sorted(texts)
    ours = life.draft(RULES, "anna", texts[changed] + "\n# ours\n")
    life.promote(RULES, "bert", ours, "active")
    life.retire(RULES, "anna", RuleVersion.objects.get(name=retired), why="not here")
    newer = {name: text + "\n# a later release\n" for name, text in texts.items()}
    monkeypatch.setattr(builtin, "texts", lambda: newer)
    assert builtin.load() == [untouched]
    assert RuleVersion.objects.get(name=changed, state="active").author == "anna"
    assert not RuleVersion.objects.filter(name=retired, state="active").exists()
    assert RuleVersion.objects.get(name=untouched, state="active").number == 2
