"""What keeps an incident open: its runs, and the restrictions that it has brought."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Q

from policies.incidents.models import IncidentMember
from policies.playbooks.models import PlaybookRun
from policies.restrictions.models import Restriction, RestrictionQuerySet
from policies.rules.effects import owner_of

__all__ = ["keeps_open", "restrictions_of"]


def keeps_open(incidents: Collection[int], now: datetime) -> set[int]:
    """Return those of ``incidents`` with a run under way, or a restriction in force.

    Two queries for all, and two more for each without a run.
    """
    live = PlaybookRun.objects.live().filter(incident_id__in=incidents).order_by()
    busy = {each for each in live.values_list("incident_id", flat=True) if each is not None}
    rest = [each for each in incidents if each not in busy]
    return busy | {each for each in rest if restrictions_of(each).in_force(now).exists()}


def restrictions_of(incident: int) -> RestrictionQuerySet:
    """Return the restrictions of an incident: those of its runs, and of its rules' firings."""
    runs = PlaybookRun.objects.filter(incident_id=incident).values_list("pk", flat=True)
    whose = Q(pk__in=[])
    for run in runs:
        whose |= Q(owner__startswith=f"playbook:{run}/")
    for rule, kind, name in IncidentMember.objects.filter(incident=incident).values_list(
        "rule", "scope_kind", "scope_name"
    ):
        whose |= Q(owner=owner_of(rule), evidence__scope=f"{kind} {name}")
    return Restriction.objects.filter(whose)
