"""``GET /api/v1/what-if``: what would follow if a part of the fleet failed now."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.cost import dear
from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from admission.outages.foreseeing import foresee
from admission.outages.told import told
from fleet.api.actors import actor_of
from policies.headroom.outage import KINDS
from policies.scopes import Scope, ScopeKind, UnknownScope

__all__ = ["WhatIfView"]

_NAMES = ("kind", "name")


class ScopeSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    name = serializers.CharField()


class DarkSerializer(serializers.Serializer[Any]):
    racks = serializers.IntegerField()
    gpus = serializers.IntegerField()
    w = serializers.FloatField(help_text="What they draw now")


class HitSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Job, phase and attempt, if the reader may see it")
    gpus = serializers.IntegerField()
    dark_gpus = serializers.IntegerField()


class OverSerializer(serializers.Serializer[Any]):
    kind = serializers.CharField()
    name = serializers.CharField()
    load_w = serializers.FloatField(help_text="At today's draw, before anybody gives way")
    budget_w = serializers.FloatField()
    short_w = serializers.FloatField(help_text="What caps would leave above the budget")


class SlowedSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(allow_blank=True, help_text="Empty: load of no known owner")
    rack = serializers.CharField(
        allow_blank=True, help_text="Of load of no known owner: where all of it is"
    )
    gives_way = serializers.CharField(
        help_text="`agreed`: to be slower; `unmanaged`: no known owner; `firm`: agreed to nothing"
    )
    gpus = serializers.IntegerField()
    was_w = serializers.FloatField(allow_null=True, help_text="Cap of now, W per GPU; null: none")
    cap_w = serializers.FloatField()


class ElsewhereSerializer(serializers.Serializer[Any]):
    site = serializers.CharField()
    step = serializers.IntegerField()


class RelyingSerializer(serializers.Serializer[Any]):
    key = serializers.CharField()
    gpus = serializers.IntegerField()
    uses = serializers.ListField(
        child=serializers.CharField(),
        help_text="`gang`: its GPUs talk over it; `data`: its data comes over it; `checkpoints`: "
        "they go to another site over it; `storage`: it reads and writes there",
    )
    reserved = serializers.FloatField(help_text="What it declares to send; 0: nothing")
    unit = serializers.CharField()
    another_way = serializers.BooleanField(help_text="By the inventory, for all of its uses")
    elsewhere = ElsewhereSerializer(
        many=True, help_text="Latest checkpoints that keepers have verified at other sites"
    )


class MovesSerializer(serializers.Serializer[Any]):
    job = serializers.CharField()
    was = serializers.CharField(help_text="Its fallback state")
    state = serializers.CharField(help_text="The state that the policy of fallback takes it to")
    after_s = serializers.FloatField(help_text="Once it has been so for so long")
    why = serializers.CharField()
    stopped = serializers.ListField(
        child=serializers.CharField(), help_text="Attempts that would be told to end"
    )


class WhatIfSerializer(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    scope = ScopeSerializer()
    dark = DarkSerializer(help_text="What would have no power")
    jobs_hit_count = serializers.IntegerField()
    jobs_hit = HitSerializer(many=True, help_text="Jobs with GPUs that would have no power")
    over = OverSerializer(many=True, help_text="Budgets that would be exceeded")
    controller_acts = serializers.BooleanField(
        help_text="false: it is off, or no agent sets caps, so that nothing is slowed"
    )
    slowed_count = serializers.IntegerField()
    slowed_gpus = serializers.IntegerField()
    slowed_w = serializers.FloatField(help_text="What the lower caps take")
    slowed = SlowedSerializer(many=True, help_text="What would be capped lower than now")
    paused_count = serializers.IntegerField()
    paused = serializers.ListField(child=serializers.CharField())
    stopped_count = serializers.IntegerField()
    stopped = serializers.ListField(
        child=serializers.CharField(), help_text="Ended for what caps and pauses leave"
    )
    short_w = serializers.FloatField(help_text="What even that would leave above a budget")
    relying_count = serializers.IntegerField()
    relying = RelyingSerializer(
        many=True, help_text="Of a link or a storage endpoint: jobs that rely on it"
    )
    moves_count = serializers.IntegerField()
    moves = MovesSerializer(
        many=True, help_text="What fallback would do of it, were it to last, and not else"
    )
    not_known = serializers.ListField(child=serializers.CharField())


class WhatIfView(APIView):
    """What would follow if a part of the fleet failed now."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        operation_id="what_if",
        parameters=[
            OpenApiParameter("kind", str, required=True, enum=[each.value for each in KINDS]),
            OpenApiParameter("name", str, required=True, description="As the inventory has it"),
        ],
        responses=WhatIfSerializer,
    )
    @dear("it to a part that fewer jobs run on")
    def get(self, request: Request) -> Response:
        """Return the consequences of an outage: nothing is done.

        Evaluated by the code that would act: headroom of the fleet without that part, the
        controller's next round on it, and the policy of fallback on the sites as they would then
        be. Lists name at most 100 jobs each.
        """
        scope = _scope(request)
        now = time.time()
        try:
            found = foresee(scope, now)
        except UnknownScope as exc:
            raise NotFound(str(exc)) from None
        told_as = told(found, Visibility(actor_of(request)))
        return Response(WhatIfSerializer({"at": datetime.fromtimestamp(now, UTC), **told_as}).data)


def _scope(request: Request) -> Scope:
    check_names(request.query_params, _NAMES)
    kind, name = (request.query_params.get(each, "") for each in _NAMES)
    if kind not in [each.value for each in KINDS]:
        known = ", ".join(each.value for each in KINDS)
        raise ValidationError({"kind": f"Give one of {known}."})
    if not name:
        raise ValidationError({"name": "Give its name, as the inventory has it."})
    return Scope(ScopeKind(kind), name)
