"""Rules, incidents and playbooks in the database, as pages and browsers are to see them."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from typing import Any

from django.utils import timezone

from accounts.models import User
from accounts.roles import Role
from dashboard import moments
from policies.documents import life
from policies.incidents import follow
from policies.incidents.models import Incident
from policies.playbooks import runs
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.playbooks.run_context import Conditions
from policies.playbooks.versions import PLAYBOOKS
from policies.restrictions import actions
from policies.restrictions.models import Restriction
from policies.rules.actions import RULES
from policies.rules.machine import Phase
from policies.rules.models import RuleEpisode, RuleProgress, RuleReplay, RuleVersion
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import api_client, make_user
from tests.builders.firings import make_firing

AUTHOR, REVIEWER = "ada", "bob"

_RULE = """\
name: {name}
description: Says when a rack is too hot.
scope: rack
severity: warning
summary: "Rack {{name}} has a GPU at {{hottest_c}}"
when: hottest_c > {above}
for: 4s
clear: hottest_c < 75.0
clear_for: 4s
effects:
  - restrict: {{kind: no_new_launches, lease: 60s}}
  - incident: {{playbook: cool-down}}
"""
_PLAYBOOK = """\
name: {name}
description: Lets a rack cool down
scopes: [rack]
constraint: Heat that the rack gives off
failure_mode: GPUs slow down
switching_cost: Minutes of every job
steps:
"""
ASKS = """\
- id: stop
  restrict: {kind: no_new_launches}
- id: may-drain
  approve: {question: "Drain {name}?", roles: [operator, admin]}
  timeout: 15m
- id: look
  manual: {instruction: "Look at the fans of {name}."}
"""


def rule_text(name: str = "rack-hot", above: float = 80.0) -> str:
    return _RULE.format(name=name, above=above)


def make_rule(name: str = "rack-hot", *, to: str = "active", text: str = "") -> RuleVersion:
    """Add a version of a rule and bring it to a state."""
    draft = life.draft(RULES, AUTHOR, text or rule_text(name), note="to try it")
    return draft if to == "draft" else life.promote(RULES, REVIEWER, draft, to)


def set_phases(version: RuleVersion, phases: dict[str, Phase]) -> None:
    """Have ``version`` fire, or be about to, on scopes, by name."""
    now = timezone.now().timestamp()
    scopes = {
        name: [int(phase), now - 60, now - 50 if phase >= Phase.FIRING else None, None]
        for name, phase in phases.items()
    }
    RuleProgress.objects.update_or_create(version=version, defaults={"at": now, "scopes": scopes})


def make_episode(version: RuleVersion, scope: str = "oslo/A01", **given: Any) -> RuleEpisode:
    now = timezone.now()
    fields: dict[str, Any] = {
        "version": version, "rule": version.name, "mode": "active", "scope_kind": "rack",
        "scope_name": scope, "severity": "warning", "since": now - timedelta(minutes=2),
        "fired_at": now - timedelta(minutes=1), "summary": f"Rack {scope} is hot",
        "restricts": [
            {"kind": "no_new_launches", "scope_kind": "rack", "scope_name": scope, "value": None,
             "lease_s": 60, "most_of_site": None},
        ],
        "told_fired": True,
    }  # fmt: skip
    return RuleEpisode.objects.create(**{**fields, **given})


def make_outcome(start: float, firings: int = 2, **given: Any) -> dict[str, Any]:
    """Return what a replay keeps of one version."""
    episodes = [
        {
            "scope": f"oslo/A{place + 1:02}", "since": start + 590, "fired_at": start + 600,
            "cleared_at": start + 1800 if place else None, "summary": f"Rack {place} is hot",
            "restricts": [f"no_new_launches on rack oslo/A{place + 1:02}"],
        }
        for place in range(firings)
    ]  # fmt: skip
    return {
        "firings": firings, "scopes": firings, "firing_s": 1200.0 * firings,
        "open_at_end": min(firings, 1),
        "restricted": {"no_new_launches": {"count": firings, "scope_s": 1200.0}} if firings else {},
        "delayed_jobs": 3, "delayed_s": 420.0, "pages": firings, "episodes": episodes,
        "series": {"t": [start, start + 600, start + 1800], "firing": [0, firings, 1]},
        "not_recorded": [], "without_reservations": [], **given,
    }  # fmt: skip


def make_replay(version: RuleVersion, **given: Any) -> RuleReplay:
    """Make a replay that is done, beside an active version 1."""
    end = timezone.now()
    start = end - timedelta(hours=1)
    result = {
        "step_s": 10.0, "tier": "raw", "took_s": 1.25, "active_number": 1,
        "version": make_outcome(start.timestamp()),
        "active": make_outcome(start.timestamp(), firings=5),
    }  # fmt: skip
    fields: dict[str, Any] = {
        "version": version, "start_at": start, "end_at": end, "state": "done", "by": AUTHOR,
        "created_at": end, "finished_at": end, "result": result,
    }  # fmt: skip
    return RuleReplay.objects.create(**{**fields, **given})


def lower_budget(kind: str, name: str, watts: float) -> None:
    """Have a restriction of an operator leave a place so much power, or heat, and show it."""
    given = {
        "kind": "power_budget_w",
        "scope": {"kind": kind, "name": name},
        "value": watts,
        "reason": "the grid asked",
        "for_s": 600,
    }
    client = api_client(Role.OPERATOR)
    answer = client.post("/api/v1/restrictions", given, content_type="application/json")
    assert answer.status_code == 201, answer.content
    moments.invalidate()


def lift_all() -> None:
    """Have an operator lift all restrictions."""
    operator = User.objects.filter(username="olga").first() or make_user(
        Role.OPERATOR, username="olga"
    )
    for row in Restriction.objects.filter(ended_at=None):
        actions.lift(operator, row.pk, why="over", now=timezone.now())


def open_incident(*scopes: str, rule: str = "rack-hot", **given: Any) -> Incident:
    """Have a rule fire on scopes, such as "rack oslo/A01", five minutes ago."""
    at = timezone.now() - timedelta(minutes=5)
    fields = {"since": at - timedelta(minutes=1), "at": at, **given}
    firings = [make_firing(each, rule, **fields) for each in scopes or ["rack oslo/A01"]]
    (incident,) = follow.fired(firings, now=at)
    return incident


def playbook_text(steps: str = ASKS, name: str = "cool-down") -> str:
    return _PLAYBOOK.format(name=name) + textwrap.indent(textwrap.dedent(steps), "  ")


def make_playbook(
    steps: str = ASKS, name: str = "cool-down", *, to: str = "active"
) -> PlaybookVersion:
    """Add a version of a playbook with these steps."""
    text = playbook_text(steps, name)
    draft = life.draft(PLAYBOOKS, AUTHOR, text)
    return draft if to == "draft" else life.promote(PLAYBOOKS, REVIEWER, draft, to)


def make_run(
    version: PlaybookVersion, incident: Incident | None = None, scope: str = "oslo/A01"
) -> PlaybookRun:
    """Start a run and move it on until it waits. Celery is to be out of the way."""
    now = timezone.now()
    row = runs.start(
        version.name, scope=Scope(ScopeKind.RACK, scope), values={"thermal_margin_c": 2.5},
        incident_id=incident.pk if incident else None, by="rule:rack-hot", now=now,
    )  # fmt: skip
    runs.advance(row.pk, now, Conditions(now))
    row.refresh_from_db()
    return row
