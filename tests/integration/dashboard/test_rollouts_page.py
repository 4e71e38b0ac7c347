"""The pages of rollouts, and what people do there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from accounts.roles import Role
from fleet import snapshot
from fleet.models import Node
from policies.documents import life
from policies.rollouts.following import ROLLOUTS
from policies.rollouts.models import RolloutRun, RolloutVersion
from telemetry.versions.models import NodeVersions
from tests.builders.accounts import client_of
from tests.builders.documents import put_in_force
from tests.builders.fleet import small_fleet
from tests.builders.rollouts import DRIVER, make_held
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.fixture
def version(db: None) -> RolloutVersion:
    small_fleet(sites=("oslo",), rows=("A",))
    snapshot.invalidate()
    return put_in_force(ROLLOUTS, DRIVER)


def opened(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return text_of(html_of(response))


def test_nobody_sees_them_without_logging_in(client: Client, version: RolloutVersion) -> None:
    for path in ("/rollouts/", "/rollouts/driver/", "/live/rollouts/driver"):
        assert client.get(path).status_code == 302


def test_without_any_it_says_what_it_would_show(db: None) -> None:
    assert "What this page will show" in opened(client_of(Role.VIEWER), "/rollouts/")


def test_what_is_in_force_may_be_started_by_who_runs_playbooks(version: RolloutVersion) -> None:
    viewed = client_of(Role.VIEWER).get("/rollouts/")
    assert "/rollouts/driver/start" not in html_of(viewed)
    responder = client_of(Role.RESPONDER)
    assert "driver 580.2: 33 % of the GPUs" in opened(responder, "/rollouts/")
    assert client_of(Role.VIEWER).post("/rollouts/driver/start").status_code == 403
    assert responder.post("/rollouts/driver/start").status_code == 302
    assert RolloutRun.objects.get().state == "pending"
    assert "1 rollout under way" in opened(responder, "/rollouts/")


def test_one_shows_evidence_arms_drift_and_what_comes_next(version: RolloutVersion) -> None:
    make_held(version)
    text = opened(client_of(Role.VIEWER), "/rollouts/driver/")
    for said in (
        "driver is held", "to be rolled back: power", "it waits for a person", "+3.10 %",
        "+1.20 % to +5.00 %", "not judged yet", "of 80 % of the changed GPUs",
        "Compared with oslo/A02, oslo/A03", "+0.12 SD in draw over budget", "nothing reported",
    ):  # fmt: skip
        assert said in text, said
    assert "What you may do" not in text


def test_to_stop_takes_less_than_to_go_on_and_a_reason(version: RolloutVersion) -> None:
    make_held(version)
    responder = client_of(Role.RESPONDER)
    text = opened(responder, "/rollouts/driver/")
    assert "Roll back" in text
    assert "Promote" not in text
    assert responder.post("/rollouts/driver/promote", {"why": "so"}).status_code == 403
    assert responder.post("/rollouts/driver/dance", {"why": "so"}).status_code == 404
    responder.post("/rollouts/driver/roll_back", {"why": " "})
    assert RolloutRun.objects.get().state == "held"
    responder.post("/rollouts/driver/roll_back", {"why": "it draws more"})
    run = RolloutRun.objects.get()
    assert (run.state, run.why) == ("rolling_back", "it draws more")


def test_versions_are_reviewed_on_the_page_of_documents(version: RolloutVersion) -> None:
    life.draft(ROLLOUTS, "anna", DRIVER.replace("580.2", "590.1"))
    text = opened(client_of(Role.OPERATOR), "/documents/rollouts/driver/")
    assert "Rollouts" in text
    assert "590.1" in text


def test_what_nodes_run_is_told_and_the_few_that_differ_by_name(version: RolloutVersion) -> None:
    assert "What nodes run" not in opened(client_of(Role.VIEWER), "/rollouts/")
    nodes = list(Node.objects.order_by("name"))
    for number, node in enumerate(nodes):
        NodeVersions.objects.create(
            node=node, driver="570.1" if number else "550.2", told_at=NOW, changed_at=NOW
        )
    html = html_of(client_of(Role.VIEWER).get("/rollouts/"))
    assert f'href="/nodes/{nodes[0].pk}/"' in html
    text = text_of(html)
    assert f"driver 570.1 {len(nodes) - 1}" in text
    assert f"driver 550.2 1 {nodes[0].name}" in text
    assert "VBIOS" not in text
