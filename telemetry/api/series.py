"""``/api/v1/series``: readings of one thing over a span of time, as JSON or CSV."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import ViewsFleet
from telemetry import series, spans
from telemetry.series import Series, SeriesRequest


class SeriesSerializer(serializers.Serializer[Series]):
    """``columns``: ``t`` (Unix s) and one list per field, all of one length, null where missing."""

    kind = serializers.ChoiceField(list(series.Kind))
    id = serializers.IntegerField()
    start = serializers.FloatField(help_text="Unix s")
    end = serializers.FloatField(help_text="Unix s, not included")
    step_s = serializers.FloatField(allow_null=True, help_text="Bucket width; null: readings as is")
    columns = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True))
    )


_TIME = "Unix seconds, or ISO 8601 (UTC unless it says otherwise)"
PARAMETERS = [
    OpenApiParameter("kind", OpenApiTypes.STR, required=True, enum=list(series.Kind)),
    OpenApiParameter("id", OpenApiTypes.INT, required=True, description="For `host`: of the node"),
    OpenApiParameter("fields", OpenApiTypes.STR, description="Names, with commas between them"),
    OpenApiParameter("range", OpenApiTypes.STR, description="Up to now: `15m`, `1h`, `6h`, `2d`"),
    OpenApiParameter("from", OpenApiTypes.STR, description=_TIME),
    OpenApiParameter("to", OpenApiTypes.STR, description=f"{_TIME}. Without it: now"),
    OpenApiParameter(
        "points",
        OpenApiTypes.INT,
        default=series.DEFAULT_POINTS,
        description=f"At most so many rows, {series.MIN_POINTS} to {series.MAX_POINTS}",
    ),
    OpenApiParameter(
        "band",
        OpenApiTypes.INT,
        enum=[0, 1],
        description="1: add `FIELD_min` and `FIELD_max`, the least and greatest in each bucket",
    ),
]


class _View(APIView):
    permission_classes = (ViewsFleet,)

    def read(self, request: Request) -> tuple[SeriesRequest, Series]:
        """Return what is asked for and the answer, or raise what the client did wrong."""
        params = request.query_params.dict()
        now = time.time()
        try:
            wanted = series.parse(params, spans.parse(params, now))
            return wanted, series.query(wanted, now)
        except spans.ParameterError as error:
            raise ValidationError({error.field: str(error)}) from error
        except series.NotFound as error:
            raise NotFound(str(error)) from error


class SeriesView(_View):
    @extend_schema(parameters=PARAMETERS, responses=SeriesSerializer)
    def get(self, request: Request) -> Response:
        """Readings of one thing over a span of time, thinned to at most ``points`` rows.

        Where there are more readings, rows are means over buckets of equal width. A row of nulls
        stands where readings are missing.
        """
        wanted, found = self.read(request)
        return Response(
            {
                "kind": wanted.kind,
                "id": wanted.id,
                "start": wanted.start,
                "end": wanted.end,
                "step_s": found.step_s,
                "columns": found.columns,
            }
        )


class SeriesCsvView(_View):
    @extend_schema(
        parameters=PARAMETERS,
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, description="The rows")},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """The same as a file: a ``time`` column (ISO 8601, UTC), then the fields."""
        wanted, found = self.read(request)
        start = datetime.fromtimestamp(wanted.start, UTC)
        name = f"{wanted.kind}-{wanted.id}-{start:%Y%m%dT%H%M%SZ}"
        return StreamingHttpResponse(
            csv_lines(found),
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
        )


class _Echo:
    """What csv.writer writes to: it hands each line back."""

    def write(self, line: str) -> str:
        return line


def csv_lines(found: Series) -> Iterator[str]:
    """Yield the lines of the CSV file. An empty field is a reading that is missing."""
    names = [name for name in found.columns if name != "t"]
    writer = csv.writer(_Echo())
    yield writer.writerow(["time", *names])
    for t, *values in zip(found.columns["t"], *(found.columns[n] for n in names), strict=True):
        at = datetime.fromtimestamp(t or 0.0, UTC)
        yield writer.writerow([at.isoformat(timespec="milliseconds"), *values])
