"""A step that calls another system, over real connections."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from policies.incidents import outbox
from policies.incidents.models import Delivery, NotificationChannel
from policies.incidents.outgoing import sign
from tests.builders.servers import listening, statuses
from tests.integration.policies.playbooks.conftest import Stage, start

CALL = "- {id: call, webhook: {channel: dcim, subject: 'Shift {scope}'}, timeout: 5m}"


@pytest.fixture(autouse=True)
def own_network(settings: Any) -> None:
    settings.NOTIFY_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    settings.NOTIFY_TIMEOUT_S = 0.3


def called(url: str) -> Stage:
    NotificationChannel.objects.create(name="dcim", kind="webhook", target=url, secret="s3cret")
    stage = start(CALL)
    stage.play()
    return stage


def deliver() -> None:
    """Send what waits, now and in this thread."""
    NotificationChannel.objects.update(not_before=None)
    Delivery.objects.update(next_at=timezone.now())
    outbox.deliver(now=timezone.now(), run=lambda work: work())


def test_it_is_signed_tried_again_and_told_by_its_key() -> None:
    with listening(statuses(500, 200)) as other:
        stage = called(other.url)
        deliver()
        assert stage.play(2).state == "waiting"
        deliver()
        assert stage.play(2).state == "succeeded"
        first, second = other.received
    assert first.json()["title"] == "Shift rack oslo/A01"
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.headers["Idempotency-Key"] == stage.run.key("0")
    stamp = int(first.headers["X-Headroom-Timestamp"])
    assert first.headers["X-Headroom-Signature"] == f"v1={sign('s3cret', stamp, first.body)}"
    assert stage.run.steps.get(step="call").note == "taken after 2 tries"


def test_one_that_is_refused_is_the_error_of_its_step() -> None:
    with listening(statuses(403)) as other:
        stage = called(other.url)
        deliver()
    assert stage.play(2).state == "failed"
    assert "403" in stage.run.why


def test_one_that_hangs_holds_nothing_up_and_ends_with_its_step() -> None:
    with listening(hangs=True) as other:
        stage = called(other.url)
        begin = time.monotonic()
        deliver()
        assert stage.play(2).state == "waiting"
        assert time.monotonic() - begin < 9
        stage.now += timedelta(minutes=5)
        assert stage.play().why == "step call was not done in time"
        deliver()
        assert len(other.received) == 1
