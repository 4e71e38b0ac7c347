"""Throttle events by cause and place: one row for a cause in a rack or site, however many GPUs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from django.contrib.postgres.aggregates import BoolOr
from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import NullIf
from django.urls import reverse

from dashboard import causes
from policies.scopes import ScopeKind
from telemetry.models import ThrottleEvent, ThrottleEventQuerySet
from telemetry.throttle.rules import Severity

__all__ = ["By", "by_cause_and_place", "row_of"]


class By(StrEnum):
    """What a row of the page stands for, in the plural."""

    RACK = "racks"
    SITE = "sites"
    EVENT = "events"


#: The primary key of the place, what its name is made of, and the filter that takes that name.
_PLACES = {
    By.RACK: ("gpu__node__rack", ("gpu__node__rack__site__name", "gpu__node__rack__name"), "rack"),
    By.SITE: ("gpu__node__rack__site", ("gpu__node__rack__site__name",), "site"),
}


def by_cause_and_place(events: ThrottleEventQuerySet, by: By) -> QuerySet[ThrottleEvent, Any]:
    """Return the groups of ``events``, as dicts: open and unexpected ones first, the worst on top.

    ``by`` is a kind of place. Sums and extremes are of whole events, also of what lies out of the
    range. :func:`row_of` makes a row of each.
    """
    key, names, _ = _PLACES[by]
    found: QuerySet[ThrottleEvent, Any] = (
        events.order_by()
        .values("cause", "expected", key, *names)
        .annotate(
            worst=Max("severity"),
            events=Count("pk"),
            gpus=Count("gpu", distinct=True),
            open_gpus=Count("gpu", distinct=True, filter=Q(closed_at__isnull=True)),
            is_open=BoolOr(Q(closed_at__isnull=True)),
            jobs=Count("job", distinct=True),
            first_at=Min("opened_at"),
            last_at=Max("closed_at"),
            lost_s=Sum(F("lost_mhz_s") / NullIf(F("usual_mhz"), 0.0)),
            peak_temp_c=Max("peak_temp_c"),
            min_sm_mhz=Min("min_sm_mhz"),
            energy_j=Sum("energy_j"),
        )
        .order_by("-is_open", "expected", "-worst", "-open_gpus", "-gpus", "cause", key)
    )
    return found


def row_of(found: dict[str, Any], by: By, query: dict[str, str]) -> dict[str, Any]:
    """Return a group as the page shows it, with links to its place and to its events one by one.

    ``query`` are the filters of the page, which that keeps. ``last_at`` is None while one goes on.
    """
    key, names, parameter = _PLACES[by]
    cause = causes.of(found["cause"])
    class_ = ThrottleEvent.Class.EXPECTED if found["expected"] else ThrottleEvent.Class.UNEXPECTED
    place = "/".join(found[name] for name in names)
    narrower = {
        **query,
        "by": By.EVENT.value,
        "cause": cause.token,
        "class": class_.value,
        parameter: place,
    }
    return {
        **found,
        "cause": cause,
        "severity": Severity(found["worst"]).token,
        "place": place,
        "place_url": _url(by, found[key], place),
        "events_url": f"?{urlencode(narrower)}",
        "last_at": None if found["is_open"] else found["last_at"],
    }


def _url(by: By, key: int, name: str) -> str:
    if by == By.RACK:
        return reverse("rack", args=[key])
    return reverse("place", args=[ScopeKind.SITE.value, name])
