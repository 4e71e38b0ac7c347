"""The racks of a rollout are changed, and changed back, by another system over real connections."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.roles import Role
from policies.incidents import outbox
from policies.incidents.models import Delivery, NotificationChannel
from policies.incidents.outgoing import sign
from policies.playbooks import runs as playbook_runs
from policies.playbooks.machine import RunState
from policies.playbooks.models import PlaybookRun
from policies.playbooks.run_context import Conditions
from policies.restrictions.models import Restriction
from policies.rollouts import following
from policies.rollouts.machine import RolloutState
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.builders.policies import make_playbook
from tests.builders.servers import listening
from tests.integration.policies.rollouts import test_following
from tests.integration.policies.rollouts.test_following import NEW, OLD, START, after, begun

pytestmark = pytest.mark.django_db

fleet = test_following.fleet
celery_is_out_of_the_way = test_following.celery_is_out_of_the_way

_CHANGE = """\
- id: empty
  restrict: {kind: drain, most_of_site: 1}
- id: install
  webhook:
    channel: ansible
    subject: "{rollout}: {rollout_version} on {scope}"
  undo: {webhook: {channel: ansible, subject: "{rollout}: back on {scope}"}}
"""


def play(now_s: float) -> PlaybookRun:
    """Have the run of the first rack go on, and send what it has to send; and go on again."""
    now = START + timedelta(seconds=now_s)
    run = PlaybookRun.objects.order_by("id")[0]
    for _ in range(2):
        playbook_runs.advance(run.pk, now, Conditions(now))
        Delivery.objects.update(next_at=timezone.now())
        outbox.deliver(now=timezone.now(), run=lambda work: work())
    run.refresh_from_db()
    return run


def test_the_hook_is_told_of_the_change_and_of_the_way_back(
    fleet: SmallFleet, settings: Any
) -> None:
    settings.NOTIFY_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    make_playbook(_CHANGE, "change-by-hand")
    with listening() as ansible:
        NotificationChannel.objects.create(
            name="ansible", kind="webhook", target=ansible.url, secret="s3cret"
        )
        run = begun()
        ((rack,),) = run.racks
        assert play(1).state == RunState.SUCCEEDED
        # It held its restriction until it was over.
        assert [each.scope_name for each in Restriction.objects.filter(kind="drain")] == [rack]
        assert not Restriction.objects.live().exists()
        test_following.install(fleet, run, NEW)
        assert after(run, 1).state == RolloutState.SOAKING
        following.act(
            make_user(Role.RESPONDER), run.pk,
            following.Verb.ROLL_BACK, why="it draws more", now=START + timedelta(minutes=2),
        )  # fmt: skip
        assert play(180).state == RunState.UNDONE
        test_following.install(fleet, run, OLD)
        assert after(run, 4).state == RolloutState.ROLLED_BACK
    there, back = ansible.received
    assert there.json()["title"] == f"driver: {NEW} on rack {rack}"
    assert back.json()["title"] == f"driver: back on rack {rack}"
    assert there.headers["Idempotency-Key"] != back.headers["Idempotency-Key"]
    stamp = int(there.headers["X-Headroom-Timestamp"])
    assert there.headers["X-Headroom-Signature"] == f"v1={sign('s3cret', stamp, there.body)}"
