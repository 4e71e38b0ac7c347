"""Incidents as a reader may see them: one about a job of another project is not there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from accounts.visibility import Visibility
from policies.incidents.models import Incident, IncidentMember, TimelineEntry

__all__ = ["DELIVERY", "ENTRY", "INCIDENT", "MEMBER", "SILENCE", "by_number", "entries"]
__all__ += ["incidents", "members", "pk_of"]

#: Texts and JSON that may name jobs, of each kind of row.
INCIDENT = ("title", "resolution")
MEMBER = ("key", "summary", "values", "labels", "inhibited_by", "muted_reason")
ENTRY = ("text", "data")
DELIVERY = ("subject", "error")
SILENCE = ("matchers", "reason")

_NUMBER = re.compile(r"(?:INC-)?([0-9]{1,18})", re.ASCII)


def pk_of(number: str) -> int:
    """Return the key of the incident ``INC-12``, or ``12``; 0, which none has: it is no number."""
    found = _NUMBER.fullmatch(number)
    return int(found[1]) if found else 0


def by_number(number: str, visibility: Visibility) -> Incident | None:
    """Return an incident; None where there is none, or the reader does not see it. Two queries."""
    rows = Incident.objects.seen_by(visibility).filter(pk=pk_of(number))
    return next(iter(incidents(rows, visibility)), None)


def incidents(found: Iterable[Incident], visibility: Visibility) -> list[Incident]:
    """Return incidents that ``seen_by`` has let pass. Not to be saved. One query at most."""
    return visibility.veiled(found, *INCIDENT)


def members(found: Iterable[IncidentMember], visibility: Visibility) -> list[IncidentMember]:
    """Return firings. One query at most."""
    return visibility.veiled(found, *MEMBER)


def entries(found: Iterable[TimelineEntry], visibility: Visibility) -> list[TimelineEntry]:
    """Return entries of a timeline. One query at most."""
    return visibility.veiled(found, *ENTRY)
