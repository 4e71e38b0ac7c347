"""``/api/v1/playbooks``: versions, their review, and dry runs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, NotFound, ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleetOrEditsPolicies, ViewsFleetOrRunsPlaybooks
from fleet.api.actors import actor_of
from policies.playbooks import plan, runs, versions
from policies.playbooks.api.serializers import (
    DryRunSerializer,
    PlaybookPlanSerializer,
    PlaybookTextSerializer,
    PlaybookVersionSerializer,
)
from policies.playbooks.models import PlaybookVersion
from policies.playbooks.parse import PlaybookError
from policies.rules.api.parsers import YamlParser
from policies.scopes import Scope, ScopeKind

_NAME = OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH)
_NUMBER = OpenApiParameter("number", OpenApiTypes.INT, OpenApiParameter.PATH)


class Conflict(APIException):
    """It is not in the state in which this can be done."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"


class PlaybooksView(ListAPIView[PlaybookVersion]):
    """The newest versions: of each playbook the active one, or else the last."""

    serializer_class = PlaybookVersionSerializer
    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)
    cursor_ordering = ("name",)

    def get_queryset(self) -> QuerySet[PlaybookVersion]:
        return PlaybookVersion.objects.newest()

    @extend_schema(request=PlaybookTextSerializer, responses={201: PlaybookVersionSerializer})
    def post(self, request: Request) -> Response:
        """Add a draft: the next version of the playbook that the text names.

        The body is ``{"text": …}`` or, as ``application/yaml``, the text itself.
        """
        body = PlaybookTextSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        try:
            version = versions.create_draft(
                body.validated_data["text"], author=actor_of(request).username, now=timezone.now()
            )
        except PlaybookError as error:
            raise _refusal(error) from error
        return Response(PlaybookVersionSerializer(version).data, status=status.HTTP_201_CREATED)


def _refusal(error: PlaybookError) -> ValidationError:
    fields: dict[str, list[ErrorDetail]] = {}
    for problem in error.problems:
        hint = f" ({problem.hint})" if problem.hint else ""
        where = f"line {problem.line}, column {problem.column}: " if problem.line else ""
        said = ErrorDetail(f"{where}{problem.message}{hint}", "invalid_playbook")
        fields.setdefault(problem.field or "non_field_errors", []).append(said)
    return ValidationError(fields)


class PlaybookVersionsView(ListAPIView[PlaybookVersion]):
    """All versions of a playbook, the newest first."""

    serializer_class = PlaybookVersionSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    cursor_ordering = ("-number",)

    def get_queryset(self) -> QuerySet[PlaybookVersion]:
        if getattr(self, "swagger_fake_view", False):
            return PlaybookVersion.objects.none()
        found = PlaybookVersion.objects.filter(name=self.kwargs["name"])
        if not found.exists():
            raise NotFound
        return found


class _OfVersion(APIView):
    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrEditsPolicies,)

    def version(self, name: str, number: int) -> PlaybookVersion:
        return get_object_or_404(PlaybookVersion, name=name, number=number)


class PlaybookVersionView(_OfVersion):
    @extend_schema(parameters=[_NAME, _NUMBER], responses=PlaybookVersionSerializer)
    def get(self, request: Request, name: str, number: int) -> Response:
        """One version with its text."""
        return Response(PlaybookVersionSerializer(self.version(name, number)).data)


class ActivateView(_OfVersion):
    @extend_schema(parameters=[_NAME, _NUMBER], request=None, responses=PlaybookVersionSerializer)
    def post(self, request: Request, name: str, number: int) -> Response:
        """Start new runs by this draft. Its author cannot be its reviewer."""
        by = actor_of(request).username
        try:
            done = versions.activate(self.version(name, number), reviewer=by, now=timezone.now())
        except versions.VersionError as error:
            raise Conflict(str(error)) from error
        return Response(PlaybookVersionSerializer(done).data)


class RetireView(_OfVersion):
    @extend_schema(parameters=[_NAME, _NUMBER], request=None, responses=PlaybookVersionSerializer)
    def post(self, request: Request, name: str, number: int) -> Response:
        """Start no new runs by this version. Those under way go on by it."""
        by = actor_of(request).username
        try:
            done = versions.retire(self.version(name, number), by=by, now=timezone.now())
        except versions.VersionError as error:
            raise Conflict(str(error)) from error
        return Response(PlaybookVersionSerializer(done).data)


class DryRunView(APIView):
    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrRunsPlaybooks,)

    @extend_schema(
        operation_id="playbooks_dry_run",
        parameters=[_NAME],
        request=DryRunSerializer,
        responses=PlaybookPlanSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        """Say what a run would do now: each step, its numbers, who is asked, how it is undone."""
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
