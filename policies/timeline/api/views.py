"""``/api/v1/incidents/INC-12/figure``: an incident on one time axis."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.cost import dear
from accounts.visibility import Visibility
from fleet import snapshot
from fleet.api.actors import actor_of
from policies.incidents import visible
from policies.timeline import reading
from telemetry.api.figures import PARAMETERS, RESPONSES, FigureView, look
from telemetry.spans import ParameterError


class IncidentFigureView(FigureView):
    """The figure of an incident."""

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "number", OpenApiTypes.STR, OpenApiParameter.PATH, description="`INC-12`, or `12`"
            ),
            *PARAMETERS,
        ],
        responses=RESPONSES,
        operation_id="incident_figure_retrieve",
    )
    @dear("the span of time, or points")
    def get(self, request: Request, number: str) -> Response:
        """Show an incident on one time axis: what was read at its places, and what happened.

        Lanes have its first firings, throttling, and the restrictions of its rules and playbooks;
        marks have the steps of playbooks, what people did, and errors of GPUs. `absent` names what
        nobody reported. `format=csv` gives the readings.
        """
        visibility = Visibility(actor_of(request))
        incident = visible.by_number(number, visibility)
        if incident is None:
            raise Http404(f"There is no incident {number[:40]}.")
        now = time.time()
        life = reading.lived(incident, datetime.fromtimestamp(now, UTC))
        try:
            looked = look(request.query_params.dict(), life, now)
            found = reading.figure(incident, looked, snapshot.current(), visibility)
        except ParameterError as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        return self.answer(incident.number, found)
