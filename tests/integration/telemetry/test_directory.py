"""Who may speak for what, as each process knows it."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from telemetry import directory, enrollment
from telemetry.directory import scope_of
from telemetry.models import Agent, ScopeGeneration
from tests.builders.agents import make_agent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything


@pytest.mark.usefixtures("nothing_turns_over")
def test_a_known_token_costs_no_query(source: Source) -> None:
    scope_of(source.token)
    with CaptureQueriesContext(connection) as queries:
        scope = scope_of(source.token)
    assert len(queries) == 0
    assert scope is not None
    assert scope.node_ids == {source.node.pk}


def test_an_agent_enrolled_a_moment_ago_is_known_at_once(source: Source) -> None:
    scope_of(source.token)
    _, token = make_agent("newcomer", nodes=[source.node])
    scope = scope_of(token)
    assert scope is not None
    assert scope.name == "newcomer"


@pytest.mark.parametrize("change", ["revoke", "rotate", "narrow", "delete"])
def test_a_change_by_another_process_is_seen_when_the_time_is_up(
    source: Source, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    scope_of(source.token)
    # As another process does it: nothing tells this one.
    monkeypatch.setattr(directory, "invalidate_scopes", lambda: None)
    if change == "revoke":
        enrollment.revoke("operator", source.agent)
    elif change == "rotate":
        enrollment.rotate("operator", source.agent)
    elif change == "narrow":
        source.agent.nodes.clear()
    else:
        source.agent.delete()
    before = scope_of(source.token)
    assert before is not None
    assert before.node_ids == {source.node.pk}
    monkeypatch.setattr(directory, "SCOPE_MAX_AGE_S", -1.0)
    after = scope_of(source.token)
    assert after is None or after.node_ids == frozenset()


def test_what_batches_say_of_an_agent_changes_no_scope(source: Source) -> None:
    before = ScopeGeneration.current()
    source.push(make_batch("agent-1", "n1"))
    source.push(b"not a batch")
    drain_everything()
    assert Agent.objects.get().last_seen_at is not None
    assert ScopeGeneration.current() == before


def test_a_token_of_a_user_is_no_agents(source: Source) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert scope_of("hru_" + source.token.removeprefix("hra_")) is None
    assert len(queries) == 0
