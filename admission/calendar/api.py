"""``/api/v1/calendar``: what is planned, and what sites are committed to from now on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names, whole_number
from accounts.permissions import ViewsFleet
from admission.calendar.committed import committed
from admission.calendar.figure import figure
from admission.calendar.planned import Kind, Planned, planned
from admission.core.ahead import Ahead
from fleet import snapshot
from fleet.api.actors import actor_of
from telemetry.api.figures import RESPONSES, FigureView
from telemetry.spans import Span

__all__ = ["DEFAULT_DAYS", "MOST_DAYS", "CalendarFigureView", "CalendarView", "span_of"]

DEFAULT_DAYS, MOST_DAYS = 7, 30
_DAY_S = 86_400.0
_DAYS = OpenApiParameter(
    "days", OpenApiTypes.INT, description=f"From now on, 1 to {MOST_DAYS}; else {DEFAULT_DAYS}"
)


class PlannedSerializer(serializers.Serializer[Any]):
    """One thing that is planned."""

    kind = serializers.ChoiceField(list(Kind))
    name = serializers.CharField(help_text="Id of its row; of a deadline the name of its job")
    what = serializers.CharField(help_text="In words")
    sites = serializers.ListField(child=serializers.CharField())
    begin_at = serializers.DateTimeField()
    end_at = serializers.DateTimeField(allow_null=True)
    watts = serializers.FloatField(
        allow_null=True,
        help_text="What it takes at most; of a curtailment or a restriction what may be drawn",
    )
    project = serializers.CharField(help_text="Empty: none, or not yours")
    reason = serializers.CharField()


class TightestSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    committed_w = serializers.FloatField()
    budget_w = serializers.FloatField()


class SiteAheadSerializer(serializers.Serializer[Any]):
    """What a site is committed to draw. Its columns are in `GET /api/v1/calendar/figure`."""

    site = serializers.CharField()
    now_w = serializers.FloatField(help_text="Committed now")
    tightest = TightestSerializer(
        allow_null=True, help_text="When least is left of the budget; null: it has none"
    )


class CalendarSerializer(serializers.Serializer[Any]):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    sites = SiteAheadSerializer(many=True)
    planned = PlannedSerializer(many=True, help_text="The next first; of each kind 200 at most")


class CalendarView(APIView):
    """What is planned, and what it takes."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[_DAYS], responses=CalendarSerializer, operation_id="calendar_retrieve"
    )
    @dear("days")
    def get(self, request: Request) -> Response:
        """Return bookings, curtailments, announced restrictions and deadlines to come.

        And when each site has least left of its budget: what runs counts until its walltime is up,
        what is booked for a project by what its hosts are rated for, all else as it draws now. Jobs
        that wait do not count. ML users see names and reasons of their own projects.
        """
        check_names(request.query_params, ("days",))
        span = span_of(request.query_params, time.time())
        found = planned(actor_of(request), snapshot.current(), span)
        sites = committed(span)
        body = {
            "start": span.start_at,
            "end": span.end_at,
            "sites": [_site(name, each) for name, each in sites.items()],
            "planned": [_told(each) for each in found],
        }
        return Response(CalendarSerializer(body).data)


class CalendarFigureView(FigureView):
    """The calendar of a site as a figure."""

    @extend_schema(
        parameters=[OpenApiParameter("site", OpenApiTypes.STR, required=True), _DAYS],
        responses=RESPONSES,
        operation_id="calendar_figure_retrieve",
    )
    @dear("days")
    def get(self, request: Request) -> Response:
        """Show what a site is committed to beside its budget, and what is planned there.

        `format=csv` gives the watts.
        """
        params = request.query_params
        check_names(params, ("days", "site", "format", "points"))
        site, span = params.get("site", ""), span_of(params, time.time())
        sites = committed(span)
        if site not in sites:
            raise NotFound(f"There is no site {site[:40]!r}.")
        found = planned(actor_of(request), snapshot.current(), span)
        here = [each for each in found if site in each.sites or not each.sites]
        return self.answer(f"{site}-calendar", figure(span, sites[site], here))


def span_of(params: Mapping[str, str], now: float) -> Span:
    """Return the span from ``now`` on (Unix s) that a query string asks for.

    Raises DRF's ``ValidationError``.
    """
    text = params.get("days", "")
    days = whole_number(text, least=1, most=MOST_DAYS) if text else DEFAULT_DAYS
    if days is None:
        raise serializers.ValidationError({"days": f"Give a number of days from 1 to {MOST_DAYS}."})
    return Span(now, now + days * _DAY_S)


def _at(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)


def _told(each: Planned) -> dict[str, Any]:
    return {
        **asdict(each),
        "begin_at": _at(each.begin_at),
        "end_at": None if each.end_at is None else _at(each.end_at),
    }


def _site(name: str, found: Ahead) -> dict[str, Any]:
    at = found.tightest
    tightest = None if at is None else {
        "at": _at(float(found.at[at])),
        "committed_w": float(found.committed[at]),
        "budget_w": float(found.budget[at]),
    }  # fmt: skip
    return {"site": name, "now_w": float(found.committed[0]), "tightest": tightest}
