"""``/api/v1/playbooks``: versions, their review, and dry runs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleetOrEditsPolicies, ViewsFleetOrRunsPlaybooks
from policies.documents.api import DraftSerializer, YamlParser, drafted
from policies.playbooks import plan, runs
from policies.playbooks.api.serializers import (
    DryRunSerializer,
    PlaybookPlanSerializer,
    PlaybookVersionSerializer,
)
from policies.playbooks.models import PlaybookVersion
from policies.playbooks.parse import parse
from policies.playbooks.versions import PLAYBOOKS
from policies.scopes import Scope, ScopeKind

_NAME = OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH)


class PlaybooksView(ListAPIView[PlaybookVersion]):
    """The newest versions: of each playbook the active one, or else the last."""

    serializer_class = PlaybookVersionSerializer
    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)
    cursor_ordering = ("name",)

    def get_queryset(self) -> QuerySet[PlaybookVersion]:
        return PlaybookVersion.objects.newest()

    @extend_schema(request=DraftSerializer, responses={201: PlaybookVersionSerializer})
    def post(self, request: Request) -> Response:
        """Add a draft: the next version of the playbook that the text names.

        The body is ``{"text": …}`` or, as ``application/yaml``, the text itself.
        """
        return drafted(PLAYBOOKS, PlaybookVersionSerializer, request)


def says(text: str) -> dict[str, Any]:
    """Return the scopes that a playbook's text names, for its check."""
    return {"scopes": [kind.value for kind in parse(text).playbook.scopes]}


class DryRunView(APIView):
    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrRunsPlaybooks,)

    @extend_schema(
        operation_id="playbooks_dry_run",
        parameters=[_NAME],
        request=DryRunSerializer,
        responses=PlaybookPlanSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        """Plan a run without starting it: each step, its numbers, who is asked, its undoing."""
        body = DryRunSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given: dict[str, Any] = body.validated_data
        found = PlaybookVersion.objects.filter(name=name)
        number = given["version"]
        found = found.active() if number is None else found.filter(number=number)
        program = get_object_or_404(found).program
        scope = scope_of(given)
        try:
            runs.check_scope(program, scope)
            inputs = runs.chosen_inputs(program, given["inputs"])
        except runs.BadStart as error:
            raise bad_start(error) from error
        return Response(
            PlaybookPlanSerializer(plan.plan(program, scope, inputs, timezone.now())).data
        )


def scope_of(given: dict[str, Any]) -> Scope:
    return Scope(ScopeKind(given["scope"]["kind"]), given["scope"]["name"])


def bad_start(error: runs.BadStart) -> ValidationError:
    """Return the answer to a start that cannot be."""
    message = f"{error}: {error.hint}" if error.hint else str(error)
    return ValidationError({error.field: [ErrorDetail(message, "invalid")]})
