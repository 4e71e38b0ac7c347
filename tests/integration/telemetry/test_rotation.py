"""A new token without a pause: the old one goes on for a while."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import AuditEntry
from telemetry import enrollment
from telemetry.directory import invalidate_scopes, scope_of
from telemetry.models import Agent
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source


def is_good(token: str) -> bool:
    invalidate_scopes()
    return scope_of(token) is not None


def rotate(agent: Agent, grace_s: float = 0) -> str:
    agent.refresh_from_db()
    return enrollment.rotate("operator", agent, grace=timedelta(seconds=grace_s))


def test_without_grace_the_old_token_ends(source: Source) -> None:
    new = rotate(source.agent)
    assert (is_good(source.token), is_good(new)) == (False, True)


def test_with_grace_both_tokens_are_good(source: Source) -> None:
    old, source.token = source.token, rotate(source.agent, 60)
    assert is_good(old)
    assert source.push(make_batch("agent-1", "n1", 1)).status_code == 202
    source.token = old
    assert source.push(make_batch("agent-1", "n1", 2)).status_code == 202


def test_the_old_token_ends_with_the_grace(source: Source) -> None:
    new = rotate(source.agent, 60)
    Agent.objects.update(previous_until=timezone.now() - timedelta(seconds=1))
    assert (is_good(source.token), is_good(new)) == (False, True)


def test_it_ends_in_a_process_that_does_not_look_again(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotate(source.agent, 0.2)
    assert is_good(source.token)
    end = timezone.now().timestamp() + 0.3
    monkeypatch.setattr("telemetry.directory.time.time", lambda: end)
    assert scope_of(source.token) is None


def test_rotating_again_ends_the_token_before_the_last(source: Source) -> None:
    second = rotate(source.agent, 60)
    third = rotate(source.agent, 60)
    assert [is_good(token) for token in (source.token, second, third)] == [False, True, True]


def test_revoking_ends_both_tokens(source: Source) -> None:
    new = rotate(source.agent, 60)
    source.agent.refresh_from_db()
    enrollment.revoke("operator", source.agent)
    assert (is_good(source.token), is_good(new)) == (False, False)


def test_a_revoked_token_does_not_come_back_with_a_new_one(source: Source) -> None:
    enrollment.revoke("operator", source.agent)
    new = rotate(source.agent, 60)
    assert (is_good(source.token), is_good(new)) == (False, True)


def test_enrolling_anew_ends_both_tokens(source: Source) -> None:
    second = rotate(source.agent, 60)
    wanted = enrollment.Enrollment("agent-1", ("n1",))
    (enrolled,) = enrollment.enroll("operator", [wanted], rotate=True)
    assert [is_good(t) for t in (source.token, second, enrolled.token)] == [False, False, True]


def test_the_grace_is_in_the_audit_log(source: Source) -> None:
    rotate(source.agent, 60)
    assert AuditEntry.objects.get(action="agent.rotate").detail["grace_s"] == 60
