"""Figures in JSON, MessagePack and CSV: what the timelines of jobs and of incidents share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers
from rest_framework.response import Response

from accounts.edge.parameters import check_names
from telemetry import series, spans
from telemetry.api.series import POINTS, TIME, ColumnsView
from telemetry.figures.model import Figure, Role, table, told
from telemetry.figures.place import Look
from telemetry.spans import ParameterError, Span

__all__ = ["PARAMETERS", "RESPONSES", "FigureView", "look"]

PARAMETERS = [
    OpenApiParameter("range", OpenApiTypes.STR, description="The last of it: `15m`, `6h`, `2d`"),
    OpenApiParameter("from", OpenApiTypes.STR, description=f"{TIME}. Without it: all of it"),
    OpenApiParameter("to", OpenApiTypes.STR, description=f"{TIME}. Without it: its end"),
    POINTS,
    OpenApiParameter(
        "since",
        OpenApiTypes.STR,
        description="Unix seconds: readings from before are left out, for who has them already",
    ),
]
_NAMES = {parameter.name for parameter in PARAMETERS} | {"format"}


def look(params: Mapping[str, str], life: Span, now: float, *more: str) -> Look:
    """Read how a figure of something that lived in ``life`` is looked at.

    What lies outside of its life is not shown. ``more``: names of parameters that are read
    elsewhere. Raises :class:`ParameterError`.
    """
    check_names(params, _NAMES | {*more})
    asked = any(params.get(name) for name in ("range", "from", "to"))
    given = spans.parse(params, life.end) if asked else life
    span = Span(
        max(given.start, life.start), min(given.end, life.end), live=life.live and given.live
    )
    if span.length_s <= 0.0:
        raise ParameterError(
            "from",
            f"it is of {life.start_at:%Y-%m-%dT%H:%M:%SZ} to {life.end_at:%Y-%m-%dT%H:%M:%SZ}",
        )
    since = spans.moment(params["since"], "since") if params.get("since") else 0.0
    return Look(span, series.points_of(params.get("points", "")), now, since)


_COLUMN = serializers.ListField(child=serializers.FloatField(allow_null=True))


class LineSerializer(serializers.Serializer[Any]):
    """A line of a row. Of a band the columns are `FIELD_min` and `FIELD_max`."""

    field = serializers.CharField(help_text="Its column; empty: it is level, at `value`")
    name = serializers.CharField()
    role = serializers.ChoiceField(list(Role))
    value = serializers.FloatField(allow_null=True, help_text="In the unit of the row")


class RowSerializer(serializers.Serializer[Any]):
    """Readings of one kind. All columns of a row have one length, null where missing."""

    key = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.CharField()
    note = serializers.CharField(help_text="Where the readings are from")
    step_s = serializers.FloatField(allow_null=True, help_text="Bucket width")
    lines = LineSerializer(many=True)
    columns = serializers.DictField(child=_COLUMN, help_text="`t` (Unix s) and fields")


class AbsentSerializer(serializers.Serializer[Any]):
    """A row that is not there, and why."""

    title = serializers.CharField()
    why = serializers.CharField()


class LaneSerializer(serializers.Serializer[Any]):
    """Spans of one kind, as columns."""

    key = serializers.CharField(help_text="A stable token, such as that of a cause")
    kind = serializers.CharField(
        help_text="attempt, throttle, directive, restriction, pending, or a severity"
    )
    start = serializers.ListField(child=serializers.FloatField(), help_text="Unix s")
    end = serializers.ListField(
        child=serializers.FloatField(allow_null=True), help_text="Unix s; null: it goes on"
    )
    text = serializers.ListField(child=serializers.CharField(), help_text="Empty: none has one")


class MarksSerializer(serializers.Serializer[Any]):
    """Moments, as columns."""

    t = serializers.ListField(child=serializers.FloatField(), help_text="Unix s")
    kind = serializers.ListField(child=serializers.CharField())
    text = serializers.ListField(child=serializers.CharField())
    bad = serializers.ListField(child=serializers.BooleanField())


class FigureSerializer(serializers.Serializer[Any]):
    """Rows of readings, spans and moments on one time axis."""

    start = serializers.FloatField(help_text="Unix s")
    end = serializers.FloatField(help_text="Unix s, not included")
    live = serializers.BooleanField(help_text="It goes on")
    since = serializers.FloatField(
        allow_null=True, help_text="Readings are of the bucket of this moment and later ones"
    )
    rows = RowSerializer(many=True)
    absent = AbsentSerializer(many=True)
    lanes = LaneSerializer(many=True)
    marks = MarksSerializer()


RESPONSES = {
    (200, "application/json"): FigureSerializer,
    (200, "application/msgpack"): FigureSerializer,
    (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, description="The readings of all rows"),
}


class FigureView(ColumnsView):
    """A view that answers with a figure."""

    def answer(self, name: str, figure: Figure) -> Response:
        """Return the figure in the form that was asked for; ``name`` is that of a file."""
        columns = {"columns": table(figure)} if self.is_csv else told(figure)
        return Response(columns, headers=self.csv_headers(name, figure.start))
