"""Restrictions as a reader may see them.

One on a job of another project is not there. Others may say which job they are for: a power cap
holds for as long as a job does.
"""

from __future__ import annotations

from collections.abc import Iterable

from accounts.visibility import Visibility
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.restrictions.strictest import InForce

__all__ = ["FIELDS", "events", "in_force", "rows"]

#: Texts and JSON that may name jobs.
FIELDS = ("reason", "cause", "evidence", "pending_why", "ended_why")


def rows(found: Iterable[Restriction], visibility: Visibility) -> list[Restriction]:
    """Return restrictions that ``seen_by`` has let pass. Not to be saved. One query at most."""
    return visibility.veiled(found, *FIELDS)


def events(found: Iterable[RestrictionEvent], visibility: Visibility) -> list[RestrictionEvent]:
    """Return lines of the ledger. One query at most."""
    return visibility.veiled(found, "text", "data")


def in_force(found: InForce, visibility: Visibility) -> InForce:
    """Return those of the restrictions that the reader may know. Two queries at most."""
    if visibility.sees_all:
        return found
    visibility.seen([each.scope.name for each in found.restrictions if each.scope.kind == "job"])
    left = [
        each
        for each in (*found.restrictions, *found.announced)
        if not visibility.hides(each.scope.kind, each.scope.name)
    ]
    return InForce.standing(found.at, visibility.veiled(left, "reason", "cause"))
