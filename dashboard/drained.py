"""What still runs in a place that is being drained: whose it is, and why it is still there."""

from __future__ import annotations

from accounts.visibility import Visibility
from admission.jobs.models import Attempt
from dashboard import units
from fleet import snapshot
from policies.scopes import Scope, ScopeKind, UnknownScope, nodes_in

__all__ = ["left_on"]

#: So many jobs are named.
_NAMED = 5


def left_on(scope: Scope, visibility: Visibility) -> str:
    """Say which jobs still run in ``scope``; those hidden are counted. One query."""
    fleet = snapshot.current()
    try:
        names = set(fleet.nodes.names[nodes_in(fleet, scope)].tolist())
    except UnknownScope:
        return ""
    rows = Attempt.objects.open().select_related("phase__job__project").order_by("pk")
    there = [each for each in rows if not names.isdisjoint(each.placement.get("nodes", ()))]
    if not there:
        return "nothing runs there any more"
    seen = [each for each in there if not visibility.hides(ScopeKind.JOB, each.phase.job.name)]
    said = [_words(each) for each in seen[:_NAMED]]
    if len(there) > len(said):
        said.append(f"{len(there) - len(said)} more")
    return f"{units.count(len(there), 'job')} still there: {'; '.join(said)}"


def _words(attempt: Attempt) -> str:
    phase = attempt.phase
    whose = f"{phase.job.name} of {phase.job.project.name}"
    if phase.request.get("preemptible"):
        return f"{whose} has been told to save and stop"
    end = phase.expected_end_at
    until = "" if end is None else f", expected at {end:%m-%d %H:%M} UTC"
    return f"{whose} may not be stopped, and runs to its end{until}"
