"""Incidents as a reader may see them: one about a job of another project is not there."""

from __future__ import annotations

from collections.abc import Iterable

from accounts.visibility import Visibility
from policies.incidents.models import Incident, IncidentMember, TimelineEntry

__all__ = ["DELIVERY", "ENTRY", "INCIDENT", "MEMBER", "SILENCE", "entries", "incidents", "members"]

#: Texts and JSON that may name jobs, of each kind of row.
INCIDENT = ("title", "resolution")
MEMBER = ("key", "summary", "values", "labels", "inhibited_by", "muted_reason")
ENTRY = ("text", "data")
DELIVERY = ("subject", "error")
SILENCE = ("matchers", "reason")


def incidents(found: Iterable[Incident], visibility: Visibility) -> list[Incident]:
    """Return incidents that ``seen_by`` has let pass. Not to be saved. One query at most."""
    return visibility.veiled(found, *INCIDENT)


def members(found: Iterable[IncidentMember], visibility: Visibility) -> list[IncidentMember]:
    """Return firings. One query at most."""
    return visibility.veiled(found, *MEMBER)


def entries(found: Iterable[TimelineEntry], visibility: Visibility) -> list[TimelineEntry]:
    """Return entries of a timeline. One query at most."""
    return visibility.veiled(found, *ENTRY)
