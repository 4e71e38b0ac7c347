"""``/api/v1/alertmanager``: alerts of a Prometheus Alertmanager become firings here."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import audit
from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleetOrRunsPlaybooks
from fleet.api.actors import actor_of
from policies.incidents import follow, incoming
from policies.incidents.models import Incident
from policies.incidents.writing import writing


class AlertsParser(JSONParser):
    """Parses larger bodies than other views: alerts come by the thousand."""

    max_bytes = 16 * 1024 * 1024


class TakenSerializer(serializers.Serializer[Any]):
    """Counts of the alerts that were taken, and the incidents that they opened."""

    firing = serializers.IntegerField()
    resolved = serializers.IntegerField()
    opened = serializers.ListField(child=serializers.CharField())


class AlertmanagerView(APIView):
    """The webhook of an Alertmanager, version 4. Its token needs the role of a responder."""

    permission_classes = (ViewsFleetOrRunsPlaybooks,)
    parser_classes = (AlertsParser,)

    @extend_schema(request=OpenApiTypes.OBJECT, responses=TakenSerializer)
    def post(self, request: Request) -> Response:
        """Take alerts. Sent again, they change nothing."""
        now = timezone.now()
        try:
            found = incoming.read(request.data, now)
        except incoming.BadPayload as error:
            raise serializers.ValidationError({error.field or "body": str(error)}) from error
        with writing():
            if found.resolved:
                follow.cleared(found.resolved, now=now)
            opened: list[Incident] = []
            if found.firing:
                # Not handed over: what this brings to light is for the policy loop.
                opened = follow.take(found.firing, now=now, hand_over=False).opened
            if opened:
                numbers = [each.number for each in opened]
                audit.record(actor_of(request), "alertmanager.opened", "", incidents=numbers)
        return Response(
            {
                "firing": len(found.firing),
                "resolved": len(found.resolved),
                "opened": [each.number for each in opened],
            }
        )
