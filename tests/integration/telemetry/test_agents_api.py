from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts import tokens
from accounts.models import AuditEntry
from accounts.roles import Role
from fleet.models import Site
from telemetry import directory
from telemetry.models import Agent
from tests.builders.accounts import api_client
from tests.builders.agents import make_agent
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db
URL = "/api/v1/agents"


@pytest.fixture
def operator() -> Client:
    return api_client(Role.OPERATOR)


def post(client: Client, data: Any, url: str = URL) -> Any:
    return client.post(url, data, content_type="application/json")


class TestEnrolling:
    def test_it_answers_with_a_token_that_opens_the_door(self, operator: Client) -> None:
        node = make_node()
        answer = post(operator, {"name": "a1", "nodes": ["n1"], "sites": ["oslo"]})
        assert answer.status_code == 201
        scope = directory.scope_of(answer.json()["token"])
        assert scope is not None
        assert scope.agent_id == answer.json()["id"]
        assert scope.node_ids == {node.pk}
        assert scope.site_ids == {node.rack.site_id}

    def test_the_token_is_never_shown_again(self, operator: Client) -> None:
        made = post(operator, {"name": "a1"}).json()
        shown = operator.get(f"{URL}/{made['id']}")
        assert made["token"] not in shown.content.decode()
        assert shown.json()["hint"] == made["token"][:8]

    def test_a_list_is_enrolled_at_once(
        self, operator: Client, django_assert_max_num_queries: Any
    ) -> None:
        for index in range(5):
            make_node(f"n{index}", gpus=0)
        wanted = [{"name": f"a{i}", "nodes": [f"n{i % 5}"]} for i in range(200)]
        # One insert for each audit entry; all else is done in bulk.
        with django_assert_max_num_queries(220):
            answer = post(operator, wanted)
        assert answer.status_code == 201
        assert [row["name"] for row in answer.json()] == [row["name"] for row in wanted]
        assert len({row["token"] for row in answer.json()}) == 200
        assert Agent.objects.get(name="a7").nodes.get().name == "n2"

    def test_an_empty_list_is_no_error(self, operator: Client) -> None:
        assert post(operator, []).json() == []

    def test_a_name_that_is_taken_is_a_conflict(self, operator: Client) -> None:
        first = post(operator, {"name": "a1"}).json()
        answer = post(operator, {"name": "a1"})
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "name_taken"
        assert answer.json()["error"]["field"] == "name"
        assert directory.scope_of(first["token"]) is not None

    def test_rotate_gives_a_taken_name_a_new_token_and_a_new_scope(self, operator: Client) -> None:
        make_node("n1", gpus=0)
        make_node("n2", gpus=0)
        first = post(operator, {"name": "a1", "nodes": ["n1"], "sites": ["oslo"]}).json()
        second = post(operator, {"name": "a1", "nodes": ["n2"]}, f"{URL}?rotate=1").json()
        assert second["id"] == first["id"]
        agent = Agent.objects.get()
        assert bytes(agent.digest) == tokens.digest(second["token"])
        assert [node.name for node in agent.nodes.all()] == ["n2"]
        assert not agent.sites.exists()

    def test_rotate_brings_a_revoked_agent_back(self, operator: Client) -> None:
        made = post(operator, {"name": "a1"}).json()
        post(operator, None, f"{URL}/{made['id']}/revoke")
        assert post(operator, {"name": "a1"}, f"{URL}?rotate=1").status_code == 201
        assert Agent.objects.usable().exists()

    @pytest.mark.parametrize(
        ("body", "status", "field"),
        [
            ({}, 400, "name"),
            ({"name": ""}, 400, "name"),
            ({"name": "x" * 201}, 400, "name"),
            ({"name": "a1", "nodes": "n1"}, 400, "nodes"),
            ({"name": "a1", "nodes": ["n1", "nowhere"]}, 400, "nodes[1]"),
            ({"name": "a1", "sites": ["nowhere"]}, 400, "sites[0]"),
            ([{"name": "a1"}, {"name": "a2", "nodes": ["nowhere"]}], 400, "[1].nodes[0]"),
            ([{"name": "a1"}, {"name": "a1"}], 409, "[1].name"),
            ([{"name": "a1"}] * 1001, 400, ""),
            ("a1", 400, ""),
        ],
    )
    def test_what_is_wrong_is_named_and_nothing_is_enrolled(
        self, operator: Client, body: Any, status: int, field: str
    ) -> None:
        make_node("n1", gpus=0)
        answer = post(operator, body)
        assert answer.status_code == status, answer.content
        assert answer.json()["error"]["field"] == field
        assert not Agent.objects.exists()

    def test_losing_a_race_for_a_name_is_a_conflict_too(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_agent("a1")
        # The other one wrote after our look.
        monkeypatch.setattr("telemetry.enrollment._existing", lambda wanted, rotate: {})
        assert post(operator, {"name": "a1"}).status_code == 409

    def test_a_wrong_rotate_is_named(self, operator: Client) -> None:
        answer = post(operator, {"name": "a1"}, f"{URL}?rotate=yes")
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "rotate")

    def test_it_is_audited_without_the_token(self, operator: Client) -> None:
        token = post(operator, {"name": "a1"}).json()["token"]
        entry = AuditEntry.objects.filter(action="agent.enroll").get()
        assert entry.actor.startswith("operator-")
        assert entry.target == "a1"
        assert token not in str(entry.detail)


class TestTokens:
    def test_rotating_ends_the_old_token(self, operator: Client) -> None:
        made = post(operator, {"name": "a1"}).json()
        answer = post(operator, None, f"{URL}/{made['id']}/rotate")
        assert answer.status_code == 200
        directory.invalidate_scopes()
        assert directory.scope_of(made["token"]) is None
        assert directory.scope_of(answer.json()["token"]) is not None

    def test_with_a_grace_the_old_token_goes_on(self, operator: Client) -> None:
        made = post(operator, {"name": "a1"}).json()
        answer = post(operator, None, f"{URL}/{made['id']}/rotate?grace_s=3600")
        directory.invalidate_scopes()
        for token in (made["token"], answer.json()["token"]):
            assert directory.scope_of(token) is not None
        until = datetime.fromisoformat(operator.get(f"{URL}/{made['id']}").json()["previous_until"])
        assert until - timezone.now() == pytest.approx(
            timedelta(hours=1), abs=timedelta(seconds=10)
        )

    @pytest.mark.parametrize("grace", ["-1", "86401", "1.5", "", "99999999999999999999", "٣"])
    def test_a_wrong_grace_is_named(self, operator: Client, grace: str) -> None:
        made = post(operator, {"name": "a1"}).json()
        answer = post(operator, None, f"{URL}/{made['id']}/rotate?grace_s={grace}")
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "grace_s")
        directory.invalidate_scopes()
        assert directory.scope_of(made["token"]) is not None

    def test_revoking_ends_the_token_and_is_audited_once(self, operator: Client) -> None:
        made = post(operator, {"name": "a1"}).json()
        for _ in range(2):
            answer = post(operator, None, f"{URL}/{made['id']}/revoke")
            assert (answer.status_code, answer.json()["state"]) == (200, "revoked")
        directory.invalidate_scopes()
        assert directory.scope_of(made["token"]) is None
        assert AuditEntry.objects.filter(action="agent.revoke").count() == 1

    @pytest.mark.parametrize("action", ["rotate", "revoke"])
    def test_an_agent_that_is_not_there_is_not_found(self, operator: Client, action: str) -> None:
        assert post(operator, None, f"{URL}/1/{action}").status_code == 404


class TestWhoMay:
    @pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER, Role.RESPONDER])
    def test_others_may_look_but_not_touch(self, role: Role) -> None:
        agent, _ = make_agent("a1")
        client = api_client(role)
        assert client.get(URL).status_code == 200
        assert post(client, {"name": "a2"}).status_code == 403
        assert post(client, None, f"{URL}/{agent.pk}/rotate").status_code == 403
        assert post(client, None, f"{URL}/{agent.pk}/revoke").status_code == 403
        assert Agent.objects.get().revoked_at is None

    def test_nobody_sees_agents_without_a_token(self, client: Client) -> None:
        assert client.get(URL).status_code == 401

    def test_an_agents_own_token_does_not_open_it(self, client: Client) -> None:
        _, token = make_agent("a1")
        headers = {"Authorization": f"Bearer {token}"}
        assert client.get(URL, headers=headers).status_code == 401


class TestFilters:
    @pytest.fixture(autouse=True)
    def agents(self) -> None:
        now = timezone.now()
        node = make_node("rack7-node1", gpus=0)
        make_agent("live", nodes=[node])
        make_agent("stale", sites=[Site.objects.create(name="bergen")])
        make_agent("never")
        make_agent("revoked")
        Agent.objects.filter(name="live").update(last_seen_at=now)
        Agent.objects.filter(name="stale").update(last_seen_at=now - timedelta(minutes=10))
        Agent.objects.filter(name="revoked").update(last_seen_at=now, revoked_at=now)

    def names(self, query: str) -> list[str]:
        answer = api_client().get(f"{URL}?{query}")
        assert answer.status_code == 200, answer.content
        return [row["name"] for row in answer.json()["results"]]

    @pytest.mark.parametrize("state", ["live", "stale", "never", "revoked"])
    def test_by_state_which_each_agent_says_of_itself(self, state: str) -> None:
        assert self.names(f"state={state}") == [state]
        row = api_client().get(f"{URL}?state={state}").json()["results"][0]
        assert row["state"] == state

    @pytest.mark.parametrize(
        ("text", "found"),
        [("REVO", ["revoked"]), ("rack7", ["live"]), ("bergen", ["stale"]), ("%", [])],
    )
    def test_by_name_node_or_site(self, text: str, found: list[str]) -> None:
        assert self.names(f"search={text}") == found

    def test_an_unknown_state_is_named(self) -> None:
        answer = api_client().get(f"{URL}?state=happy")
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "state")

    def test_pages_go_on_where_the_last_one_ended(self) -> None:
        client = api_client()
        first = client.get(f"{URL}?page_size=3").json()
        second = client.get(first["next"]).json()
        assert [len(first["results"]), len(second["results"])] == [3, 1]
