"""``/api/v1/power-sources``: whether the sources of the power of a node agree."""

from __future__ import annotations

import time
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from fleet.models import Node
from telemetry.trust.compare import Judged, Standing, Told
from telemetry.trust.read import WINDOW_S, compare, window


class PowerSourceSerializer(serializers.Serializer[dict[str, Any]]):
    told_by = serializers.ChoiceField(choices=[each.value for each in Told])
    mean_w = serializers.FloatField()
    is_part = serializers.BooleanField(help_text="Of a part of it: there may be more")
    standing = serializers.ChoiceField(choices=[each.value for each in Standing])
    trust = serializers.FloatField(
        allow_null=True, help_text="Share of the other sources that agree; null where there is none"
    )


class GpuPowerSerializer(serializers.Serializer[dict[str, Any]]):
    index = serializers.IntegerField()
    sources = PowerSourceSerializer(many=True)


class NodePowerSerializer(serializers.Serializer[dict[str, Any]]):
    node = serializers.CharField()
    start = serializers.FloatField(help_text="Unix s")
    end = serializers.FloatField(help_text="Unix s")
    sources = PowerSourceSerializer(many=True)
    gpus = GpuPowerSerializer(many=True)


class PowerSourcesView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[OpenApiParameter("node", str, required=True, description="Name of the node")],
        responses=NodePowerSerializer,
    )
    @dear("one node")
    def get(self, request: Request) -> Response:
        """Mean power of a node and its GPUs over ten minutes, by each source that tells it.

        A source that differs from all others is `odd` where some of these agree, and `disputed`
        where none do.
        """
        params = request.query_params.dict()
        check_names(params, {"node", "format"})
        node = Node.objects.filter(name=params.get("node", "")).first()
        if node is None:
            raise NotFound("there is no such node: give its name as node=")
        now = time.time()
        span = window(now)
        found = next(compare([node.pk], now), None)
        return Response(
            {
                "node": node.name,
                "start": span.start,
                "end": span.start + WINDOW_S,
                "sources": [_listed(each) for each in found.sources] if found else [],
                "gpus": [
                    {"index": index, "sources": [_listed(each) for each in judged]}
                    for index, judged in (found.gpus.items() if found else ())
                ],
            }
        )


def _listed(each: Judged) -> dict[str, Any]:
    return {
        "told_by": each.source.told_by,
        "mean_w": each.source.mean_w,
        "is_part": each.source.is_floor,
        "standing": each.standing,
        "trust": each.trust,
    }
