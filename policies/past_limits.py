"""Which restrictions were in force when: read of their ledger, for those who look at the past."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from policies.limiting import LIMITING, Term
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction, RestrictionEvent
from policies.restrictions.strictest import ActiveRestriction

_Kind = RestrictionEvent.Kind
#: After these a restriction is in force, with the value that they state …
_BEGIN = (_Kind.IN_FORCE, _Kind.CHANGED, _Kind.APPROVED)
#: … and after these it is not.
_END = (_Kind.LIFTED, _Kind.RELEASED, _Kind.EXPIRED)


def terms(start: float, end: float, kinds: Collection[RestrictionKind] = LIMITING) -> list[Term]:
    """Return the restrictions in force at some time of a span (Unix s), and when. Two queries.

    ``kinds``: which are asked for; left out, those that limit power or links.
    """
    begun = datetime.fromtimestamp(end, UTC)
    rows = Restriction.objects.filter(kind__in=kinds, effect_at__isnull=False).filter(
        issued_at__lt=begun
    )
    rows = rows.exclude(ended_at__lte=datetime.fromtimestamp(start, UTC))
    by_id = {row.pk: row for row in rows}
    events = RestrictionEvent.objects.filter(restriction__in=by_id, kind__in=(*_BEGIN, *_END))
    told: dict[int, list[RestrictionEvent]] = {}
    for event in events.order_by("at", "id"):
        told.setdefault(event.restriction_id, []).append(event)
    found = (term for key, each in told.items() for term in _terms(by_id[key], each))
    return [term for term in found if term.since < end and term.until > start]


def _terms(row: Restriction, told: list[RestrictionEvent]) -> Iterator[Term]:
    restriction = ActiveRestriction(
        row.pk, RestrictionKind(row.kind), row.scope, row.value, row.reason, row.owner, row.cause,
        row.issued_at, row.expires_at, row.starts_at,
    )  # fmt: skip
    # A lease ends by the clock, whether or not a sweep has passed.
    ends = [*(event.at for event in told[1:]), row.expires_at]
    for event, until in zip(told, ends, strict=True):
        if event.kind in _BEGIN:
            value = event.data.get("value")
            since = event.at if row.starts_at is None else max(event.at, restriction.held_from)
            if since < until:
                yield Term(replace(restriction, value=value), since.timestamp(), until.timestamp())
