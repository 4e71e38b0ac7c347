"""The observations of a run: today's headroom, its incident, and the outcomes of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies import current
from policies.giving_back import gives_back
from policies.headroom.evaluate import Headroom
from policies.incidents.models import Delivery, Incident, IncidentMember
from policies.playbooks.document import PlannedStep
from policies.playbooks.document import Webhook as WebhookAction
from policies.playbooks.machine import Outcome, Progress, Standing
from policies.playbooks.models import Directive, PlaybookRun
from policies.playbooks.performing import standing_of
from policies.playbooks.view import OneMoment, View
from policies.restrictions import store
from policies.restrictions.effects import without_effect
from policies.restrictions.kinds import LIMITS
from policies.restrictions.models import Restriction, RestrictionEvent


class Conditions(OneMoment):
    """Today's headroom, shared by all who look at it, and evaluated when first asked for."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    @cached_property
    def fleet(self) -> FleetArrays:
        # A rack that has just been brought in is not to fail a run that is about it.
        return snapshot.fresh()

    @cached_property
    def headroom(self) -> Headroom:
        return current.headroom(self.now.timestamp())


@dataclass(frozen=True)
class StoredContext:
    """The ``machine.RunContext`` of one run at one moment, read from Postgres."""

    row: PlaybookRun
    view: View

    @classmethod
    def of(cls, row: PlaybookRun, conditions: Conditions) -> StoredContext:
        return cls(row, View(row.version.program, row.scope, row.inputs, conditions))

    def cause(self) -> bool | None:
        """Say whether the firing that the run is about goes on; None: it is about none."""
        return self._about[0]

    def closed_by(self) -> str:
        """Return who closed the incident of the run, after the run had begun; empty: nobody."""
        return self._about[1]

    @cached_property
    def _about(self) -> tuple[bool | None, str]:
        """Whether its firing goes on, and who closed its incident. Two or three queries."""
        about = self.row.incident_id
        incident = None if about is None else Incident.objects.filter(pk=about).first()
        if incident is None:
            return None, ""
        closed = incident.resolved_at is not None and incident.resolved_at >= self.row.started_at
        closed_by = incident.resolved_by if closed else ""
        firings = _firings_of(self.row)
        if not firings:
            return incident.resolved_at is None, closed_by
        return any(each.cleared_at is None and not each.dismissed for each in firings), closed_by

    def truth(self, step: PlannedStep) -> bool | None:
        return self.view.truth(step)

    def number(self, step: PlannedStep) -> float | None:
        return self.view.number(step)

    def standing(self, path: str) -> Standing | None:
        return self._standings.get(self.row.key(path))

    @cached_property
    def _standings(self) -> dict[str, Standing]:
        """The states of its restrictions, by owner. One query, and one for limits in force."""
        rows = Restriction.objects.live().filter(owner__startswith=f"playbook:{self.row.pk}/")
        found = list(rows.order_by("id"))
        told = _told([row for row in found if row.kind in LIMITS])
        return {row.owner: standing_of(row, without_effect(told.get(row.pk, {}))) for row in found}

    def outcome(self, path: str) -> Outcome:
        """Return the outcome of the message or directive of a step. One query."""
        key = self.row.key(path)
        if isinstance(self.view.program.step(path).action, WebhookAction):
            delivery = Delivery.objects.filter(key=key).first()
            return _gone() if delivery is None else _of_delivery(delivery)
        directive = Directive.objects.filter(key=key).first()
        return _gone() if directive is None else _of_directive(directive)


def preview(row: PlaybookRun, now: datetime) -> str:
    """Say what ending a run now would give back, and what that would break."""
    headroom, in_force = current.headroom(now.timestamp()), store.in_force(now)
    return gives_back(f"playbook:{row.pk}/", headroom, in_force).text


def _firings_of(row: PlaybookRun) -> list[IncidentMember]:
    """Return the firings that a run is about.

    Those of its own rule and place; of one that a person started, those in its place, or all of
    its incident where none is.
    """
    # An incident of a fleet has thousands of members, and each of its runs looks every two seconds.
    of_incident = IncidentMember.objects.filter(incident=row.incident_id)
    here = of_incident.filter(scope_kind=row.scope_kind, scope_name=row.scope_name)
    if row.rule:
        return list(here.filter(rule=row.rule))
    return list(here) or list(of_incident)


def _told(rows: Sequence[Restriction]) -> dict[int, dict[str, Mapping[str, Any]]]:
    """Return what the ledger says of the present values of limits, by restriction and kind."""
    if not rows:
        return {}
    cycle = {row.pk: row.cycle for row in rows}
    found: dict[int, dict[str, Mapping[str, Any]]] = {}
    kinds = RestrictionEvent.Kind.APPLIED, RestrictionEvent.Kind.VERDICT
    for event in RestrictionEvent.objects.filter(restriction__in=rows, kind__in=kinds):
        if event.cycle == cycle[event.restriction_id]:
            found.setdefault(event.restriction_id, {})[event.kind] = event.data
    return found


def _gone() -> Outcome:
    return Outcome(
        Progress.FAILED, "nothing was asked for: its channel is switched off, or was deleted"
    )


def _of_delivery(delivery: Delivery) -> Outcome:
    if delivery.state == Delivery.State.SENT:
        return Outcome(Progress.DONE, f"taken after {delivery.attempts} tries")
    if delivery.state == Delivery.State.FAILED:
        return Outcome(Progress.FAILED, delivery.error or "it could not be delivered")
    return Outcome(Progress.PENDING)


def _of_directive(directive: Directive) -> Outcome:
    if directive.state in Directive.OPEN:
        return Outcome(Progress.PENDING)
    if directive.state in (Directive.State.REFUSED, Directive.State.WITHDRAWN):
        return Outcome(Progress.FAILED, directive.note or f"it was {directive.state}")
    return Outcome(Progress.DONE, directive.note)
