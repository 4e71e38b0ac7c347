"""The Agents page, its live panel, and what may be done to a token."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts import tokens
from accounts.models import AuditEntry
from accounts.roles import Role
from telemetry.models import Agent
from tests.builders.accounts import client_of
from tests.builders.agents import make_agent
from tests.builders.readings import make_node
from tests.html import html_of

URL = "/agents/"


def text_of(html: str) -> str:
    return re.sub(r"\s+([,.:])", r"\1", re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


def opened(client: Client, query: str = "") -> str:
    response = client.get(URL + query)
    assert response.status_code == 200
    return html_of(response)


def names_of(html: str) -> list[str]:
    body = html[html.index("<tbody") : html.index("</tbody>")]
    return re.findall(r'<th scope="row" class="name"[^>]*><span class="clip" title="([^"]+)"', body)


@pytest.fixture
def agents(db: None) -> None:
    now = timezone.now()
    for name in ("live", "stale", "never", "revoked"):
        make_agent(name, nodes=[make_node(f"node-of-{name}", gpus=0)])
    Agent.objects.filter(name="live").update(last_seen_at=now, skew_s=-7.3, version="0.1.0")
    Agent.objects.filter(name="stale").update(
        last_seen_at=now - timedelta(minutes=10),
        errors=2,
        last_error="GPU is lost",
        refused_batches=3,
        last_refusal="future_time",
        dropped_batches=4,
        thinned_rows=70,
    )
    Agent.objects.filter(name="revoked").update(last_seen_at=now, revoked_at=now)


def test_nobody_sees_it_without_logging_in(client: Client, agents: None) -> None:
    agent = Agent.objects.get(name="live")
    for path in (URL, "/live/agents", f"{URL}{agent.pk}/rotate/", f"{URL}{agent.pk}/revoke/"):
        assert client.get(path).status_code == 302


def test_the_answer_counts_by_state(viewer: Client, agents: None) -> None:
    assert "4 agents: 1 live, 1 stale, 1 never heard, 1 revoked" in text_of(opened(viewer))


def test_what_asks_for_attention_comes_first(viewer: Client, agents: None) -> None:
    assert names_of(opened(viewer)) == ["stale", "never", "live", "revoked"]


def test_a_line_says_how_an_agent_is_doing(viewer: Client, agents: None) -> None:
    text = text_of(opened(viewer))
    assert "stale 10 min node-of-stale" in text
    assert "3 batches refused future_time 2 errors GPU is lost" in text
    assert "4 thinned" in text
    assert "\N{MINUS SIGN}7.30 s off" in text


def test_a_line_says_how_many_rows_were_refused(viewer: Client, agents: None) -> None:
    Agent.objects.filter(name="live").update(refused_rows=5, last_refusal="gpu 9: unknown")
    assert "5 rows refused gpu 9: unknown" in text_of(opened(viewer))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?state=stale", ["stale"]),
        ("?search=node-of-live", ["live"]),
        ("?search=NEVER", ["never"]),
        ("?state=happy", ["stale", "never", "live", "revoked"]),
    ],
)
def test_filters_are_in_the_url(viewer: Client, agents: None, query: str, found: list[str]) -> None:
    assert names_of(opened(viewer, query)) == found


def test_what_matches_nothing_is_said(viewer: Client, agents: None) -> None:
    assert "No agent matches “zzz”" in text_of(opened(viewer, "?search=zzz"))
    assert "No agent is stale" in text_of(opened(viewer, "?search=live&state=stale"))


def test_without_agents_it_says_how_to_enroll_the_first(viewer: Client) -> None:
    text = text_of(opened(viewer))
    assert "No agents yet" in text
    assert "How to enroll the first agent" in text
    assert "http://testserver/api/v1/agents" in text


def test_a_poll_brings_the_answer_along_and_then_nothing(viewer: Client, agents: None) -> None:
    Agent.objects.filter(name="live").update(last_seen_at=timezone.now() - timedelta(hours=1))
    html = html_of(viewer.get("/live/agents?search=live"))
    assert 'id="agents-answer" hx-swap-oob="true"' in html
    (path,) = re.findall(r'hx-get="(/live/agents[^"]+)"', html)
    assert "search=live" in path
    assert viewer.get(path.replace("&amp;", "&")).status_code == 204


def test_pages_of_very_many(viewer: Client) -> None:
    for number in range(60):
        make_agent(f"agent-{number:02}")
    first = opened(viewer, "?state=never")
    assert len(names_of(first)) == 50
    (after,) = re.findall(r'rel="next" href="([^"]+)"', first)
    assert names_of(opened(viewer, after.replace("&amp;", "&")))[0] == "agent-50"


class TestTokens:
    def test_a_viewer_has_no_buttons_and_no_way_around_them(
        self, viewer: Client, agents: None
    ) -> None:
        agent = Agent.objects.get(name="live")
        before = bytes(agent.digest)
        assert "rotate" not in opened(viewer)
        for action in ("rotate", "revoke"):
            assert viewer.get(f"{URL}{agent.pk}/{action}/").status_code == 403
            assert viewer.post(f"{URL}{agent.pk}/{action}/").status_code == 403
        agent.refresh_from_db()
        assert (bytes(agent.digest), agent.revoked_at) == (before, None)

    def test_rotating_asks_first_and_shows_the_token_once(self, agents: None) -> None:
        operator = client_of(Role.OPERATOR)
        agent = Agent.objects.get(name="live")
        before = bytes(agent.digest)
        path = f"{URL}{agent.pk}/rotate/"
        assert "Give live a new token?" in text_of(html_of(operator.get(path)))
        agent.refresh_from_db()
        assert bytes(agent.digest) == before
        answer = operator.post(path)
        (token,) = re.findall(r"hra_[\w-]{43}", html_of(answer))
        agent.refresh_from_db()
        assert bytes(agent.digest) == tokens.digest(token)
        assert "no-store" in answer["Cache-Control"]
        assert token not in opened(operator)
        assert AuditEntry.objects.filter(action="agent.rotate", target="live").count() == 1

    @pytest.mark.parametrize(
        ("given", "grace_s"), [("3600", 3600), ("86400", 86_400), ("0", None), ("99999999", None)]
    )
    def test_the_old_token_may_go_on_for_a_while(
        self, agents: None, given: str, grace_s: int | None
    ) -> None:
        operator = client_of(Role.OPERATOR)
        agent = Agent.objects.get(name="live")
        operator.post(f"{URL}{agent.pk}/rotate/", {"grace_s": given})
        agent.refresh_from_db()
        if grace_s is None:
            assert agent.previous_until is None
        else:
            assert agent.previous_until is not None
            left_s = (agent.previous_until - timezone.now()).total_seconds()
            assert left_s == pytest.approx(grace_s, abs=10)

    def test_revoking_asks_first_and_is_audited(self, agents: None) -> None:
        operator = client_of(Role.OPERATOR)
        agent = Agent.objects.get(name="live")
        path = f"{URL}{agent.pk}/revoke/"
        assert "Revoke the token of live ?" in text_of(html_of(operator.get(path)))
        assert operator.post(path).url == URL  # type: ignore[attr-defined]
        agent.refresh_from_db()
        assert agent.revoked_at is not None
        assert "The token of live is revoked." in text_of(opened(operator))
        assert AuditEntry.objects.filter(action="agent.revoke", target="live").count() == 1

    @pytest.mark.parametrize("action", ["rotate", "revoke"])
    def test_another_site_cannot_do_it(self, agents: None, action: str) -> None:
        operator = client_of(Role.OPERATOR)
        operator.handler.enforce_csrf_checks = True
        agent = Agent.objects.get(name="live")
        assert operator.post(f"{URL}{agent.pk}/{action}/").status_code == 403

    @pytest.mark.parametrize("action", ["rotate", "revoke"])
    def test_an_agent_that_is_not_there_is_not_found(self, db: None, action: str) -> None:
        assert client_of(Role.OPERATOR).post(f"{URL}1/{action}/").status_code == 404
