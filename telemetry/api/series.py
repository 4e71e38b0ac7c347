"""``/api/v1/series``: readings of one thing over a span of time, as JSON, MessagePack or CSV."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, NotFound, ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge import csv_text
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from fleet.api.actors import actor_of
from telemetry import series, spans
from telemetry.cold.places import Unreachable
from telemetry.models import ReportedJob
from telemetry.series import Series, SeriesRequest
from telemetry.store.reading import Unsettled


class PartSerializer(serializers.Serializer[Any]):
    """A part of the span, and the tier that answered for it."""

    tier = serializers.ChoiceField(list(series.Tier))
    start = serializers.FloatField(help_text="Unix s")
    end = serializers.FloatField(help_text="Unix s, not included")


class ExtentSerializer(serializers.Serializer[Any]):
    """What a field came to over the span."""

    min = serializers.FloatField()
    mean = serializers.FloatField(help_text="Weighted by time")
    max = serializers.FloatField()
    exact = serializers.BooleanField(
        help_text="`min` and `max` are of readings; false: of means over rows"
    )


class EnergySerializer(serializers.Serializer[Any]):
    """Energy over the span: what was measured, and with the time in between."""

    used_j = serializers.FloatField(help_text="Measured, in `covered_s`")
    covered_s = serializers.FloatField()
    bridged_j = serializers.FloatField(
        help_text="With the time in between, as a line from the power before to that after"
    )
    bridged_share = serializers.FloatField(help_text="The share of the time that is bridged")


class SeriesSerializer(serializers.Serializer[Series]):
    """``columns``: ``t`` (Unix s) and one list per field, all of one length, null where missing."""

    kind = serializers.ChoiceField(list(series.Kind))
    id = serializers.IntegerField()
    start = serializers.FloatField(help_text="Unix s")
    end = serializers.FloatField(help_text="Unix s, not included")
    step_s = serializers.FloatField(allow_null=True, help_text="Bucket width; null: readings as is")
    method = serializers.ChoiceField(list(series.Method), help_text="How it is thinned")
    tiers = serializers.ListField(child=PartSerializer(), help_text="Where the rows are from")
    age_s = serializers.FloatField(allow_null=True, help_text="Age of the newest row")
    columns = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True))
    )
    extents = serializers.DictField(
        child=ExtentSerializer(), required=False, help_text="With `extents=1`: by field"
    )
    energy = EnergySerializer(
        required=False, allow_null=True, help_text="With `extents=1` and `used_j`, of one source"
    )


TIME = "Unix seconds, or ISO 8601 (UTC unless it says otherwise)"
POINTS = OpenApiParameter(
    "points",
    OpenApiTypes.INT,
    default=series.DEFAULT_POINTS,
    description=f"At most so many rows, {series.MIN_POINTS} to {series.MAX_POINTS}",
)
PARAMETERS = [
    OpenApiParameter("kind", OpenApiTypes.STR, required=True, enum=list(series.Kind)),
    OpenApiParameter("id", OpenApiTypes.INT, required=True, description="For `host`: of the node"),
    OpenApiParameter("fields", OpenApiTypes.STR, description="Names, with commas between them"),
    OpenApiParameter("range", OpenApiTypes.STR, description="Up to now: `15m`, `1h`, `6h`, `2d`"),
    OpenApiParameter("from", OpenApiTypes.STR, description=TIME),
    OpenApiParameter("to", OpenApiTypes.STR, description=f"{TIME}. Without it: now"),
    POINTS,
    OpenApiParameter(
        "method",
        OpenApiTypes.STR,
        enum=list(series.Method),
        description="How more rows than `points` are thinned. Without it: `minmax`, and `mean` for "
        "sums and beside `band` and `p95`",
    ),
    OpenApiParameter(
        "tier",
        OpenApiTypes.STR,
        enum=list(series.Tier),
        description="Where to read. Without it: the coarsest that loses nothing at that many rows",
    ),
    OpenApiParameter(
        "band",
        OpenApiTypes.INT,
        enum=[0, 1],
        description="1: add `FIELD_min` and `FIELD_max`, the least and greatest in each bucket",
    ),
    OpenApiParameter(
        "extents",
        OpenApiTypes.INT,
        enum=[0, 1],
        description="1: add least, mean and greatest value of the whole span, and energy",
    ),
    OpenApiParameter(
        "p95", OpenApiTypes.INT, enum=[0, 1], description="1: add `FIELD_p95`, the 95th percentile"
    ),
]


# --- Forms of the answer -------------------------------------------------------------------------


class FastJsonRenderer(JSONRenderer):
    """JSON, ten times as fast for long lists of numbers."""

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return msgspec.json.encode(data)


class MsgPackRenderer(BaseRenderer):
    media_type = "application/msgpack"
    format = "msgpack"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return msgspec.msgpack.encode(data)


class CsvRenderer(BaseRenderer):
    """A ``time`` column (ISO 8601, UTC), then the fields. An empty field is missing.

    Columns without ``t`` stand as they are.
    """

    media_type = "text/csv"
    format = "csv"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> str:
        return "".join(csv_lines(data["columns"]))


def csv_lines(columns: Mapping[str, list[float | None]]) -> Iterator[str]:
    """Yield the lines of the CSV file."""
    names = [name for name in columns if name != "t"]
    if "t" not in columns:
        yield from csv_text.lines(chain([names], zip(*columns.values(), strict=True)))
        return
    moments = (
        datetime.fromtimestamp(t or 0.0, UTC).isoformat(timespec="milliseconds")
        for t in columns["t"]
    )
    rows = zip(moments, *(columns[name] for name in names), strict=True)
    yield from csv_text.lines(chain([("time", *names)], rows))


class _Negotiation(DefaultContentNegotiation):
    def filter_renderers(self, renderers: Any, format: str) -> Any:  # noqa: A002 - theirs
        if format not in {renderer.format for renderer in renderers}:
            known = ", ".join(renderer.format for renderer in renderers)
            raise ValidationError({"format": f"give one of {known}"})
        return super().filter_renderers(renderers, format)


# --- Views ---------------------------------------------------------------------------------------


class ColdTierAway(APIException):
    """The files of the cold tier cannot be read."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "cold_tier_away"
    default_detail = "The cold tier cannot be read; younger spans can be."


class ColumnsView(APIView):
    """A view that answers with columns, in the form that was asked for."""

    permission_classes = (ViewsFleet,)
    renderer_classes: tuple[type[BaseRenderer], ...] = (
        FastJsonRenderer,
        MsgPackRenderer,
        CsvRenderer,
    )
    content_negotiation_class = _Negotiation

    @property
    def is_csv(self) -> bool:
        """Whether a CSV file is asked for."""
        return isinstance(self.request.accepted_renderer, CsvRenderer)

    def csv_headers(self, name: str, start: float) -> dict[str, str]:
        """Return the headers of a CSV file that begins at ``start``, Unix s; of others none."""
        if not self.is_csv:
            return {}
        at = datetime.fromtimestamp(start, UTC)
        return {"Content-Disposition": f'attachment; filename="{name}-{at:%Y%m%dT%H%M%SZ}.csv"'}

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Describe the resource."""
        self._answer_in_json()
        return super().options(request, *args, **kwargs)

    def handle_exception(self, exc: Exception) -> Response:
        """Answer with an error, which is JSON whatever was asked for."""
        self._answer_in_json()
        return super().handle_exception(exc)

    def _answer_in_json(self) -> None:
        self.request.accepted_renderer = JSONRenderer()
        self.request.accepted_media_type = JSONRenderer.media_type


class SeriesView(ColumnsView):
    @extend_schema(
        parameters=PARAMETERS,
        responses={
            (200, "application/json"): SeriesSerializer,
            (200, "application/msgpack"): SeriesSerializer,
            (200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, description="The rows"),
        },
    )
    @dear("from and to, or fields, or give a coarser tier")
    def get(self, request: Request) -> Response:
        """Readings of one thing over a span of time, thinned to at most ``points`` rows.

        Where there are more, `minmax` gives the least and greatest value of each of half as many
        buckets in the order in which they came, `mean` means over buckets of equal width, and
        `lttb` those readings of one field that shape its line. A row of nulls stands where readings
        are missing.
        """
        params = request.query_params.dict()
        now = time.time()
        wanted, found = _read(params, now, Visibility(actor_of(request)))
        newest_at = found.newest_at
        answer = {
            "kind": wanted.kind,
            "id": wanted.id,
            "start": wanted.start,
            "end": wanted.end,
            "step_s": found.step_s,
            "method": wanted.method,
            "tiers": [{"tier": p.tier, "start": p.start, "end": p.end} for p in found.parts],
            "age_s": None if newest_at is None else max(0.0, now - newest_at),
            "columns": found.columns,
            **_extents(wanted, found),
        }
        headers = self.csv_headers(f"{wanted.kind}-{wanted.id}", wanted.start)
        return Response(answer, headers=headers)


def _extents(wanted: SeriesRequest, found: Series) -> dict[str, Any]:
    if not wanted.extents:
        return {}
    energy = found.energy
    return {
        "extents": {
            name: {"min": e.least, "mean": e.mean, "max": e.greatest, "exact": e.exact}
            for name, e in found.extents.items()
        },
        "energy": energy
        and {
            "used_j": energy.used_j,
            "covered_s": energy.covered_s,
            "bridged_j": energy.bridged_j,
            "bridged_share": energy.share,
        },
    }


_NAMES = {parameter.name for parameter in PARAMETERS} | {"format"}
#: The id of a job that never reports.
_NOBODYS = -1


def _read(
    params: dict[str, str], now: float, visibility: Visibility
) -> tuple[SeriesRequest, Series]:
    """Return the parsed request and the answer. Raises an API error where the client is wrong."""
    check_names(params, _NAMES)
    try:
        wanted = series.parse(params, spans.parse(params, now))
        return wanted, series.query(_as_seen(wanted, visibility), now)
    except spans.ParameterError as error:
        raise ValidationError({error.field: str(error)}) from error
    except series.NotFound as error:
        raise NotFound(str(error)) from error
    except (Unreachable, Unsettled) as error:
        raise ColdTierAway from error


def _as_seen(wanted: SeriesRequest, visibility: Visibility) -> SeriesRequest:
    """Return the request to run: for a job that is hidden from the reader, one of a missing job.

    Both take the same way from here on, so that neither answer nor time tells them apart.
    """
    if wanted.kind is not series.Kind.JOB:
        return wanted
    names = ReportedJob.objects.filter(pk=wanted.id).values_list("name", flat=True)
    return wanted if visibility.sees(names.first() or "") else replace(wanted, id=_NOBODYS)


class SeriesCsvView(SeriesView):
    """A series as a CSV file."""

    renderer_classes = (CsvRenderer,)

    @extend_schema(
        parameters=PARAMETERS,
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR, description="The rows")},
    )
    def get(self, request: Request) -> Response:
        """A series as a CSV file: a ``time`` column (ISO 8601, UTC), then the fields."""
        return super().get(request)
