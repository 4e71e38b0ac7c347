"""``/api/v1/headroom``, ``/site-conditions`` and ``/forecast-scores``."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.numbers import NumberField
from accounts.edge.parameters import check_names, whole_number
from accounts.permissions import ViewsFleet
from fleet import snapshot
from headroom.numbers import plain
from policies import current
from policies.headroom import forecasts
from policies.headroom.columns import FIELDS, Table
from policies.headroom.conditions import Consequence, SiteConditions
from policies.headroom.evaluate import Headroom
from policies.scopes import Scope, ScopeKind

DEFAULT_ROWS, MAX_ROWS = 500, 5000
#: With more rows than this, what binds each is given by its token alone.
_EXPLAINED_ROWS = 100


class FieldSerializer(serializers.Serializer[Any]):
    type = serializers.CharField(help_text="double, bool or string")
    unit = serializers.CharField(allow_blank=True)
    help = serializers.CharField()


class HeadroomSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    count = serializers.IntegerField(help_text="Scopes that match, on all pages")
    columns = serializers.DictField(
        child=FieldSerializer(), help_text="What the fields of a row say"
    )
    rows = serializers.ListField(
        child=serializers.DictField(),
        help_text="A scope each, by the names of fields. null: not known, or never",
    )


class WaySerializer(serializers.Serializer[Any]):
    kind = serializers.CharField(help_text="cap or place")
    text = serializers.CharField()
    cap_w = serializers.FloatField(allow_null=True)
    row = serializers.CharField(allow_blank=True)
    takes_w = serializers.FloatField(allow_null=True)


class ConsequenceSerializer(serializers.Serializer[Any]):
    token = serializers.CharField()
    when = serializers.CharField(
        help_text="now, soon (a forecast with a good record claims it), or if"
    )
    scope = serializers.CharField(allow_null=True, help_text="kind and name of what it is about")
    row = serializers.CharField(allow_blank=True)
    sentence = serializers.CharField()
    need = serializers.FloatField()
    have = serializers.FloatField()
    short = serializers.FloatField()
    unit = serializers.CharField()
    in_s = NumberField()
    claim = serializers.CharField(
        allow_blank=True, help_text="Of one that is forecast: between which times, and how sure"
    )
    ways = WaySerializer(many=True)


class RowConditionsSerializer(serializers.Serializer[Any]):
    row = serializers.CharField()
    racks = serializers.IntegerField()
    gpus = serializers.IntegerField()
    load_w = serializers.FloatField()
    budget_w = serializers.FloatField()
    job_w = serializers.FloatField(help_text="The largest job beside today's load")
    job_limit = serializers.CharField(allow_blank=True, help_text="Empty: its GPUs' own rating")
    job_limit_at = serializers.CharField(allow_blank=True)
    job_by_power_w = serializers.FloatField()
    job_by_heat_w = serializers.FloatField()
    hottest_c = serializers.FloatField(allow_null=True)
    margin_c = serializers.FloatField(allow_null=True)
    steady_margin_c = serializers.FloatField(allow_null=True)
    throttle_in_s = NumberField()
    stale = serializers.BooleanField()


class SiteConditionsSerializer(serializers.Serializer[Any]):
    site = serializers.CharField()
    at = serializers.DateTimeField()
    answer = serializers.CharField()
    load_w = serializers.FloatField()
    budget_w = serializers.FloatField()
    power_left_w = serializers.FloatField()
    confidence = serializers.FloatField()
    cooling_left_w = serializers.FloatField()
    hottest_c = serializers.FloatField(allow_null=True)
    margin_c = serializers.FloatField(allow_null=True)
    stale_nodes = serializers.IntegerField()
    rows = RowConditionsSerializer(many=True)
    consequences = ConsequenceSerializer(many=True)


class AllConditionsSerializer(serializers.Serializer[Any]):
    sites = SiteConditionsSerializer(many=True)


class ForecastScoreSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    horizon_s = serializers.IntegerField()
    count = serializers.IntegerField(help_text="Forecasts that were compared with what came")
    p50_w = serializers.FloatField(allow_null=True, help_text="Half are off by at most this")
    p95_w = serializers.FloatField(allow_null=True)
    bias_w = serializers.FloatField(allow_null=True, help_text="Above 0: too high, on average")
    mean_load_w = serializers.FloatField(allow_null=True)
    of_as_now = serializers.FloatField(
        allow_null=True, help_text="Mean error over that of the load as it was: below 1 is better"
    )
    coverage = serializers.FloatField(
        allow_null=True, help_text="Share of loads that fell into their band; 0.8 is right"
    )
    shown_share = serializers.FloatField(
        allow_null=True, help_text="Share of forecasts whose record was better than as now"
    )


class ClaimsSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    made = serializers.IntegerField(help_text="Claims that a budget would be exceeded")
    came_true = serializers.IntegerField()
    prevented = serializers.IntegerField(
        help_text="Made impossible by limits, or not read any more"
    )


class ForecastScoresSerializer(serializers.Serializer[Any]):
    hours = serializers.IntegerField()
    results = ForecastScoreSerializer(many=True)
    claims = ClaimsSerializer(many=True, help_text="Since the record of each budget began")


def _parameter(name: str, text: str, kind: Any = OpenApiTypes.STR, **more: Any) -> Any:
    return OpenApiParameter(name, kind, description=text, **more)


class HeadroomView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[
            _parameter("kind", "Kind of scope", enum=[str(kind) for kind in FIELDS], required=True),
            _parameter("site", "Name of a site"),
            _parameter("name", "Name of one scope"),
            _parameter("limit", f"Rows to give, at most {MAX_ROWS}", OpenApiTypes.INT),
            _parameter("offset", "Rows to leave out", OpenApiTypes.INT),
        ],
        responses=HeadroomSerializer,
    )
    def get(self, request: Request) -> Response:
        """Budget, load and headroom of the scopes of one kind, and when each runs out."""
        check_names(request.query_params, ("kind", "site", "name", "limit", "offset"))
        kind = _kind(request.query_params.get("kind", ""))
        headroom = current.headroom(time.time())
        table = headroom.table(kind)
        chosen = _chosen(headroom, table, request)
        first = _whole(request, "offset", 0, 10**9)
        last = first + _whole(request, "limit", DEFAULT_ROWS, MAX_ROWS)
        page = chosen[first:last]
        fields = {name: asdict(field) for name, field in FIELDS[kind].items()}
        return Response(
            {
                "at": _time(headroom.at),
                "kind": kind,
                "count": len(chosen),
                "columns": fields,
                "rows": _rows(headroom, table, page),
            }
        )


class SiteConditionsView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[_parameter("site", "Name of a site; left out: all")],
        responses=AllConditionsSerializer,
    )
    def get(self, request: Request) -> Response:
        """How large a job each site takes now, and the consequences of its state, in sentences."""
        check_names(request.query_params, ("site",))
        headroom = current.headroom(time.time())
        names = headroom.fleet.sites.names.tolist()
        wanted = request.query_params.get("site")
        if wanted is not None and wanted not in names:
            raise NotFound(f"there is no site {wanted!r}")
        sites = [wanted] if wanted is not None else names
        return Response({"sites": [_conditions(current.conditions_of(name)) for name in sites]})


class ForecastScoresView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[_parameter("hours", "How far back, at most 720", OpenApiTypes.INT)],
        responses=ForecastScoresSerializer,
    )
    def get(self, request: Request) -> Response:
        """How far forecasts of loads were off, by kind of scope and by how far they looked."""
        check_names(request.query_params, ("hours", "format"))
        hours = _whole(request, "hours", 24, 720)
        found = [
            {
                "kind": each.kind,
                "horizon_s": each.horizon_s,
                "count": each.errors.count,
                "p50_w": each.errors.percentile_w(0.5),
                "p95_w": each.errors.percentile_w(0.95),
                "bias_w": each.errors.bias_w,
                "mean_load_w": each.errors.mean_load_w,
                "of_as_now": each.errors.of_as_now,
                "coverage": each.errors.coverage,
                "shown_share": each.errors.shown_share,
            }
            for each in forecasts.scores(time.time(), hours)
        ]
        claims = [asdict(each) for each in forecasts.claims_made(snapshot.current())]
        return Response({"hours": hours, "results": found, "claims": claims})


# --- What is asked for ---------------------------------------------------------------------------


def _kind(text: str) -> ScopeKind:
    known = [str(kind) for kind in FIELDS]
    if text not in known:
        raise ValidationError({"kind": f"give one of {', '.join(known)}"})
    return ScopeKind(text)


def _whole(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    number = whole_number(text, most=most)
    if number is None:
        raise ValidationError({name: f"give a whole number from 0 to {most}"})
    return number


def _chosen(headroom: Headroom, table: Table, request: Request) -> list[int]:
    name, site = (request.query_params.get(each) for each in ("name", "site"))
    if name is not None:
        row = table.index_by_name.get(name)
        if row is None:
            raise NotFound(f"there is no {table.kind.replace('_', ' ')} {name!r}")
        return [row]
    if site is None:
        return list(range(len(table)))
    if site not in headroom.fleet.sites.index_by_name:
        raise NotFound(f"there is no site {site!r}")
    found: list[int] = np.flatnonzero(table.columns["site"] == site).tolist()
    return found


# --- What is answered ----------------------------------------------------------------------------


def _rows(headroom: Headroom, table: Table, page: list[int]) -> list[dict[str, Any]]:
    columns = {name: values[page].tolist() for name, values in table.columns.items()}
    rows = [
        {name: plain(values[place]) for name, values in columns.items()}
        for place in range(len(page))
    ]
    if len(page) <= _EXPLAINED_ROWS:
        for row in rows:
            row["constraint"] = _binding(headroom, Scope(table.kind, row["name"]))
    return rows


def _binding(headroom: Headroom, scope: Scope) -> dict[str, Any] | None:
    found = headroom.binding(scope)
    if found is None:
        return None
    where = found.where
    return {
        "token": found.token,
        "kind": where.kind,
        "name": where.name,
        "budget": plain(found.budget),
        "load": plain(found.load),
        "left": plain(found.left),
        "unit": found.unit,
        "share": found.share,
        "sentence": found.sentence,
    }


def _conditions(found: SiteConditions) -> dict[str, Any]:
    return {
        **{name: plain(value) for name, value in vars(found).items() if name != "rows"},
        "at": _time(found.at),
        "rows": [{name: plain(value) for name, value in asdict(row).items()} for row in found.rows],
        "consequences": [_consequence(each) for each in found.consequences],
    }


def _consequence(found: Consequence) -> dict[str, Any]:
    values = {name: plain(value) for name, value in asdict(found).items()}
    scope = None if found.scope is None else str(found.scope)
    return {**values, "scope": scope, "short": plain(found.short)}


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
