"""The lively fleet, in which one of each kind has the longest name that it may have.

Names are words without a place to break them at, which is the worst for a page.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Model
from django.utils import timezone

from admission.energy.models import ProjectHour, SiteHour
from admission.goodput.models import HourAccount
from admission.slos.models import ConditionSample
from fleet import snapshot
from fleet.models import CoolingZone, Link, Node, PowerDomain, Rack, Site
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.rollouts.following import ROLLOUTS
from policies.scopes import Scope, ScopeKind
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.lively import make_failing, make_lively
from tests.builders.policies import (
    make_playbook,
    make_rule,
    make_run,
    open_incident,
    rule_text,
)
from tests.builders.rollouts import DRIVER, make_held

__all__ = ["LONG", "LONG_DOCUMENT", "LONG_PROJECT", "make_long_names"]

#: Of places and jobs; of rules, objectives and rollouts; of projects and playbooks.
LONG, LONG_DOCUMENT, LONG_PROJECT = "w" * 200, "w" * 100, "w" * 60


def make_long_names() -> SmallFleet:
    """Make the lively fleet; its site bergen and the first of each kind there are called LONG."""
    made = make_lively()
    _rename(made)
    snapshot.invalidate()
    make_failing(made.gpu("bergen-a01-n1"))
    _make_jobs()
    _make_policies()
    return made


def _rename(made: SmallFleet) -> None:
    rack, node = made.racks["bergen/A01"], made.nodes["bergen-a01-n1"]
    named: list[tuple[type[Model], dict[str, Any]]] = [
        (Rack, {"pk": rack.pk}),
        (Node, {"pk": node.pk}),
        (CoolingZone, {"site": rack.site_id}),
        (PowerDomain, {"site": rack.site_id, "name": "feed-a1"}),
        (Link, {"rack": rack.pk}),
        (Site, {"pk": rack.site_id}),
    ]
    for kind, which in named:
        kind._default_manager.filter(**which).update(name=LONG)
    for kept in (SiteHour, ProjectHour, HourAccount, ConditionSample):
        kept._default_manager.filter(site="bergen").update(site=LONG)


def _make_jobs() -> None:
    """Have a job run on the node, for a project and in a phase of long names."""
    job = make_job(LONG, state="running", project=LONG_PROJECT, phases={"w" * 60: ()})
    make_attempt(job.phases.get(), {LONG: range(4)}, racks=[f"{LONG}/{LONG}"])


def _make_policies() -> None:
    """Have a rule, a playbook and a rollout of long names be at work on it."""
    now = timezone.now()
    make_rule(text=rule_text(LONG_DOCUMENT))
    make_rule(text=rule_text(LONG_DOCUMENT, above=85.0), to="draft")
    incident = open_incident(f"rack {LONG}/{LONG}", rule=LONG_DOCUMENT)
    make_run(make_playbook(name=LONG_PROJECT), incident)
    make_held(put_in_force(ROLLOUTS, DRIVER.replace("driver", LONG_DOCUMENT, 1)))
    store.apply(
        [
            Wanted(
                RestrictionKind.POWER_CAP_W, Scope(ScopeKind.NODE, LONG), 560.0, LONG,
                f"rule:{LONG_DOCUMENT}", "cause", now + timedelta(hours=1),
            )
        ],
        now=now,
    )  # fmt: skip
