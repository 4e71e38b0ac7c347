"""Workers killed with SIGKILL at every point of a run: no step is done twice, and none is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.db import connection

from policies.incidents.models import Delivery, Incident, NotificationChannel, TimelineEntry
from policies.playbooks import runs
from policies.playbooks.models import Directive, PlaybookRun, PlaybookVersion
from policies.restrictions.models import Restriction
from tests.integration.policies.playbooks.conftest import RACK, make_playbook

pytestmark = pytest.mark.django_db(transaction=True)

REPOSITORY = Path(__file__).resolve().parents[4]
READINGS = {"power_load_w": 9000.0, "power_budget_w": 12000.0, "gpus": 8.0, "power_use": 0.95}

#: Every kind of step that can go on without a person.
STEPS = """\
    - {id: stop, restrict: {kind: no_new_launches, until: pause, reason: "{name} is hot"}}
    - {id: tell, notify: {subject: "{name} is hot", channels: [hook]}}
    - id: which
      branch:
        when: power_use > 0.9
        then:
          - {id: cap, restrict: {kind: power_cap_w, value: power_budget_w / gpus / 2.0}}
          - {id: call, webhook: {channel: hook, subject: Capped}, undo: {notify: {subject: Lifted}}}
    - {id: pause, wait_until: {for: 1s}}
    - {id: save, checkpoint: {}, timeout: 2s, on_timeout: continue}
    - {id: over, notify: {subject: Over, channels: [hook]}}
"""
TAKEN_BACK = STEPS.replace("timeout: 2s, on_timeout: continue", "timeout: 2s, on_timeout: undo")


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A process that plays runs in children of its own, against the database of this test."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    url = urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}"))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.policies.playbooks.dying"],
        cwd=REPOSITORY, env={**os.environ, "DATABASE_URL": url},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process
        assert process.stdin is not None
        process.stdin.close()


def play(
    worker: subprocess.Popen[str], run: PlaybookRun, die_at: int = 0, *, commits: bool = True
) -> dict[str, Any]:
    """Have a worker play ``run`` and die at a point; 0: it lives."""
    order = {
        "run": run.pk, "start": run.started_at.isoformat(), "readings": READINGS,
        "die_at": die_at, "commits_alone": commits,
    }  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(order) + "\n")
    worker.stdin.flush()
    found: dict[str, Any] = json.loads(worker.stdout.readline())
    assert not found["failed"]
    return found


def begin(version: PlaybookVersion) -> PlaybookRun:
    now = datetime.now(UTC)
    incident = Incident.objects.create(
        title="Hot", group_key=f"hot {now}", rule="hot", severity="critical",
        scope_kind="rack", scope_name="oslo/A01", opened_at=now,
    )  # fmt: skip
    return runs.start(
        version.name, scope=RACK, values={}, incident_id=incident.pk, by="loop", now=now
    )


def story(run: PlaybookRun) -> dict[str, Any]:
    """Return all that came of a run, without what tells one run from another."""
    run.refresh_from_db()
    mine = f"playbook:{run.pk}/"
    assert run.incident_id is not None
    held = Restriction.objects.filter(owner__startswith=mine).order_by("owner", "id")
    told = TimelineEntry.objects.filter(incident_id=run.incident_id).order_by("id")
    sent = Delivery.objects.filter(key__startswith=mine).order_by("key")
    asked = Directive.objects.filter(key__startswith=mine).order_by("key")
    return {
        "state": run.state,
        "steps": list(run.steps.order_by("id").values_list("path", "state", "value")),
        "held": [
            (row.owner.removeprefix(mine), row.kind, row.value, row.state,
             list(row.events.order_by("id").values_list("kind", flat=True)))
            for row in held
        ],
        "sent": [(row.key.removeprefix(mine), row.subject) for row in sent],
        "asked": [
            (row.key.removeprefix(mine), row.state, [line["state"] for line in row.ledger])
            for row in asked
        ],
        "told": Counter(told.values_list("kind", "text")),
    }  # fmt: skip


def kill_at_every_point(
    worker: subprocess.Popen[str], steps: str, state: str, *, commits: bool, each: int = 1
) -> int:
    """Kill a worker at each point of a run, have another one go on, and compare what came of it."""
    NotificationChannel.objects.create(name="hook", kind="webhook", target="https://h.example")
    version = make_playbook(steps)
    undisturbed = begin(version)
    points: int = play(worker, undisturbed, commits=commits)["points"]
    expected = story(undisturbed)
    assert expected["state"] == state
    for die_at in range(each, points + 1, each):
        run = begin(version)
        assert play(worker, run, die_at, commits=commits)["killed"], die_at
        assert not play(worker, run, commits=commits)["killed"]
        assert story(run) == expected, f"killed at point {die_at} of {points}"
    return points


def test_killed_after_every_third_commit(worker: subprocess.Popen[str]) -> None:
    assert kill_at_every_point(worker, TAKEN_BACK, "undone", commits=True, each=6) > 30


@pytest.mark.slow(
    beside="tests/integration/policies/playbooks/test_sigkill.py"
    "::test_killed_after_every_third_commit"
)
def test_killed_after_every_commit(worker: subprocess.Popen[str]) -> None:
    """So between every pair of steps, forth and back."""
    assert kill_at_every_point(worker, TAKEN_BACK, "undone", commits=True, each=2) > 30


@pytest.mark.slow
def test_killed_around_every_commit_of_a_run_that_succeeds(worker: subprocess.Popen[str]) -> None:
    assert kill_at_every_point(worker, STEPS, "succeeded", commits=True) > 30


@pytest.mark.slow
def test_killed_within_moves(worker: subprocess.Popen[str]) -> None:
    """At every third statement: what is within a transaction differs by its place alone."""
    assert kill_at_every_point(worker, TAKEN_BACK, "undone", commits=False, each=3) > 100


def test_what_is_held_ends_though_nobody_ever_comes_back(worker: subprocess.Popen[str]) -> None:
    NotificationChannel.objects.create(name="hook", kind="webhook", target="https://h.example")
    run = begin(make_playbook(STEPS))
    assert play(worker, run, 12)["killed"]
    held = Restriction.objects.filter(owner__startswith=f"playbook:{run.pk}/")
    assert held
    assert all((row.expires_at - run.started_at).total_seconds() <= 610 for row in held)
