"""``GET /api/v1/controller``: what the controller of running load holds now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from policies.caps import status

__all__ = ["ControllerView"]


class HeldSerializer(serializers.Serializer[Any]):
    scope = serializers.CharField(help_text="kind and name")
    is_failover = serializers.BooleanField(
        help_text="Not what the power domain carries, but what it would if its other half failed"
    )
    level = serializers.FloatField(
        help_text="How far all below it give way: 1 not at all, 0 as far as may be"
    )
    gpus = serializers.IntegerField(help_text="Held below what they would draw")
    taken_w = serializers.FloatField(help_text="What they do not draw for it")
    over_w = serializers.FloatField(help_text="What is drawn above it now")
    short_w = serializers.FloatField(help_text="What it lacks with all caps at their lowest")
    gives_way = serializers.CharField(
        allow_blank=True,
        help_text="Who: `agreed`, jobs that agreed to be slower; `unmanaged`, load of no known"
        " owner, too; `all`, also what agreed to nothing. Empty: nobody",
    )
    deaf = serializers.IntegerField(help_text="GPUs below it on which no agent sets caps")
    left_alone = serializers.IntegerField(
        help_text="GPUs below it with load of no known owner that the policy leaves alone"
    )
    left_alone_w = serializers.FloatField(help_text="What those draw")


class HeatedSerializer(serializers.Serializer[Any]):
    gpu = serializers.CharField(help_text="The GPU that gets too hot: node and index")
    temp_c = serializers.FloatField(
        help_text="Of its core, or as much below the slowdown of the core as its memory is below"
        " its own"
    )
    slowdown_c = serializers.FloatField()
    cap_w = serializers.FloatField(help_text="On each GPU that is capped for it")
    gpus = serializers.IntegerField(
        help_text="Capped for it: those of its job, or of its node where nobody knows whose load"
        " that is"
    )
    taken_w = serializers.FloatField(help_text="What they do not draw for it")
    racks = serializers.ListField(child=serializers.CharField(), help_text="Where they are")


class ControllerSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField(allow_null=True, help_text="Of its last round; null: none")
    gpus = serializers.IntegerField()
    acting = serializers.IntegerField(help_text="GPUs on which agents set caps")
    capped = serializers.IntegerField(help_text="GPUs held below what they would draw")
    taken_w = serializers.FloatField()
    waiting = serializers.IntegerField(help_text="Attempts for which room is being made")
    paused = serializers.IntegerField(
        help_text="Attempts that stand still, since caps do not keep what somebody asked for"
    )
    starts_low = serializers.BooleanField(help_text="Jobs begin under their lowest caps")
    unmanaged_capped = serializers.BooleanField(
        help_text="Load of no known owner may be capped, by the admission policy"
    )
    budgets = HeldSerializer(many=True)
    heated = HeatedSerializer(many=True, help_text="GPUs for whose heat others are capped, too")


class ControllerView(APIView):
    """What the controller of running load holds."""

    permission_classes = (ViewsFleet,)

    @extend_schema(operation_id="controller", responses=ControllerSerializer)
    def get(self, request: Request) -> Response:
        """Return the status of its last round, at most half a minute old."""
        check_names(request.query_params, ("format",))
        found = status.read()
        if found is None:
            nothing = status.Status(
                at=0.0, gpus=0, acting=0, capped=0, taken_w=0.0, units=0, waiting=0,
                starts_low=False, unmanaged_capped=False,
            )  # fmt: skip
            return _answer(nothing, None)
        return _answer(found, datetime.fromtimestamp(found.at, UTC))


def _answer(found: status.Status, at: datetime | None) -> Response:
    return Response(ControllerSerializer({**msgspec.to_builtins(found), "at": at}).data)
