"""``GET /api/v1/annotations/events/get_data``: what happened, in the form of Graphite's events.

Grafana's own data source for Graphite reads annotations so; nothing has to be installed in it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import as_moment, check_names, whole_number
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from admission.annotations.happenings import KINDS, happenings
from fleet.api.actors import actor_of

__all__ = ["EventsView", "moment_of"]

#: The other two are what Graphite's own clients send along.
_NAMES = ("from", "until", "tags", "set", "intersection")
#: A span is at most so long.
_LONGEST = timedelta(days=366)
_USUAL = timedelta(days=1)
_BEFORE = re.compile(r"(?:now)?-(?P<count>\d{1,9})(?P<unit>[a-z]+)")
_UNITS_S = {
    "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800,
    "mon": 2_592_000, "y": 31_536_000,
}  # fmt: skip
_LATEST_S = 4_102_444_800


class EventSerializer(serializers.Serializer[Any]):
    # A serializer has a property of this name, so it cannot be declared beside the others.
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "data": serializers.CharField(allow_blank=True)}

    when = serializers.IntegerField(help_text="Unix s")
    what = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())


class EventsView(APIView):
    """What began and ended on the fleet."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        operation_id="annotations",
        parameters=[
            OpenApiParameter("from", str, description="Unix s, or `-6h`; a day ago"),
            OpenApiParameter("until", str, description="Unix s, `-1h` or `now`; now"),
            OpenApiParameter(
                "tags",
                str,
                description="All of them have to be there, with spaces between: a kind "
                f"({', '.join(KINDS)}), `begin` or `end`, a severity, a site, a kind of "
                "restriction, a playbook",
            ),
        ],
        responses=EventSerializer(many=True),
    )
    @dear("it for a shorter time")
    def get(self, request: Request) -> Response:
        """Return the newest 1,000 happenings of a span, as Graphite tells events.

        Incidents, restrictions, runs of playbooks and attempts of jobs, at their beginnings and
        ends. Jobs of other projects have no name for who may not see them.
        """
        given = request.query_params
        check_names(given, _NAMES)
        now = timezone.now()
        start = moment_of(given, "from", now - _USUAL, now)
        end = moment_of(given, "until", now, now)
        if not start < end <= start + _LONGEST:
            raise ValidationError({"from": f"Give a time before until, by {_LONGEST.days} d."})
        tags = given.get("tags", "")[:1000].split()
        found = happenings(start, end, Visibility(actor_of(request)), tags)
        return Response(
            [
                {
                    "when": int(each.at.timestamp()),
                    "what": each.what,
                    "tags": list(each.tags),
                    "data": each.data,
                }
                for each in found
            ]
        )


def moment_of(given: Any, name: str, usual: datetime, now: datetime) -> datetime:
    """Return a moment as Graphite's clients write it: Unix s, ``now``, or ``-6h`` and the like."""
    text = given.get(name, "").strip().lower()
    if text in ("", "now"):
        return now if text else usual
    seconds = whole_number(text, most=_LATEST_S)
    before = _BEFORE.fullmatch(text)
    if seconds is not None:
        return datetime.fromtimestamp(seconds, UTC)
    if before is None or before["unit"] not in _UNITS_S:
        raise ValidationError({name: "Give Unix seconds, now, or a time before now as -6h."})
    try:
        return as_moment(now - timedelta(seconds=int(before["count"]) * _UNITS_S[before["unit"]]))
    except (OverflowError, ValueError):
        raise ValidationError({name: "That is too long ago."}) from None
