"""``/api/v1/playbook-runs``: runs, and the actions of people on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.edge.errors import WrongState
from accounts.permissions import ViewsFleetOrRunsPlaybooks
from fleet.api.actors import SeeingView, actor_of
from policies.incidents.models import Incident
from policies.playbooks import runs, visible
from policies.playbooks.api.playbooks import bad_start, scope_of
from policies.playbooks.api.serializers import (
    SCOPE_CHOICES,
    PlaybookRunDetailSerializer,
    PlaybookRunSerializer,
    RunReasonSerializer,
    StartRunSerializer,
    StepAnswerSerializer,
    StepDecisionSerializer,
)
from policies.playbooks.models import PlaybookRun


class RunFilter(django_filters.FilterSet):  # type: ignore[misc]
    playbook = django_filters.CharFilter("playbook", help_text="Name of a playbook")
    state = django_filters.ChoiceFilter(choices=PlaybookRun.STATES)
    incident_id = django_filters.NumberFilter("incident_id", help_text="Id of an incident")
    scope_kind = django_filters.ChoiceFilter(choices=SCOPE_CHOICES)
    scope = django_filters.CharFilter("scope_name", help_text="Name of a scope")
    live = django_filters.ChoiceFilter(
        choices=[("1", "under way"), ("0", "over")], method="filter_live"
    )

    class Meta:
        model = PlaybookRun
        fields: list[str] = []

    def filter_live(self, rows: Any, name: str, value: str) -> QuerySet[PlaybookRun]:
        live: QuerySet[PlaybookRun] = rows.live()
        if value == "1":
            return live
        over: QuerySet[PlaybookRun] = rows.exclude(pk__in=live.values("pk"))
        return over


class PlaybookRunViewSet(
    SeeingView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    viewsets.GenericViewSet[PlaybookRun],
):
    """Runs of playbooks, the newest first."""

    queryset = PlaybookRun.objects.select_related("version")
    serializer_class = PlaybookRunSerializer
    permission_classes = (ViewsFleetOrRunsPlaybooks,)
    filterset_class = RunFilter
    lookup_value_regex = "[0-9]{1,18}"
    cursor_ordering = ("-started_at", "-id")
    veiled_fields = visible.RUN

    def get_queryset(self) -> QuerySet[PlaybookRun]:
        """The runs that the requesting user may see."""
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return PlaybookRun.objects.none()
        return PlaybookRun.objects.seen_by(self.visibility).select_related("version")

    def get_object(self) -> PlaybookRun:
        """Return the object as the requesting user may see it."""
        return visible.runs([super().get_object()], self.visibility)[0]

    def get_serializer_class(self) -> type[serializers.BaseSerializer[PlaybookRun]]:
        return PlaybookRunSerializer if self.action == "list" else PlaybookRunDetailSerializer

    @extend_schema(request=StartRunSerializer, responses={201: PlaybookRunDetailSerializer})
    def create(self, request: Request) -> Response:
        """Start the active version of a playbook."""
        body = _checked(StartRunSerializer, request)
        incident_id = body["incident_id"]
        if incident_id is not None and not Incident.objects.filter(pk=incident_id).exists():
            raise ValidationError({"incident_id": f"There is no incident {incident_id}."})
        try:
            row = runs.start(
                body["playbook"],
                scope=scope_of(body),
                values={},
                incident_id=incident_id,
                by=actor_of(request).username,
                now=timezone.now(),
                inputs=body["inputs"],
            )
        except runs.BadStart as error:
            raise bad_start(error) from error
        return Response(PlaybookRunDetailSerializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=StepDecisionSerializer, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: str) -> Response:
        """Say yes to a step that asks, or whose restriction is held. The first answer counts."""
        return self._answer(request, pk, yes=True)

    @extend_schema(request=StepDecisionSerializer, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def refuse(self, request: Request, pk: str) -> Response:
        """Say no to a step that asks, or whose restriction is held. The first answer counts."""
        return self._answer(request, pk, yes=False)

    def _answer(self, request: Request, pk: str, *, yes: bool) -> Response:
        body = _checked(StepDecisionSerializer, request)
        return self._done(runs.answer, request, pk, yes=yes, **body)

    @extend_schema(request=StepAnswerSerializer, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, pk: str) -> Response:
        """Say that a manual step is done."""
        body = _checked(StepAnswerSerializer, request)
        return self._done(runs.confirm, request, pk, step=body["step"], note=body["note"])

    @extend_schema(request=None, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        """Begin no further step. Restrictions in force stay, within the run's time limit."""
        return self._done(runs.pause, request, pk)

    @extend_schema(request=None, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Go on after a pause."""
        return self._done(runs.resume, request, pk)

    @extend_schema(request=RunReasonSerializer, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def abort(self, request: Request, pk: str) -> Response:
        """End the run at once. Its restrictions are given back; nothing else is taken back."""
        return self._done(
            runs.abort, request, pk, why=_checked(RunReasonSerializer, request)["why"]
        )

    @extend_schema(request=RunReasonSerializer, responses=PlaybookRunDetailSerializer)
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, pk: str) -> Response:
        """Take back the steps done, the last first. Runs that are over may be taken back too."""
        body = _checked(RunReasonSerializer, request)
        return self._done(runs.undo, request, pk, why=body["why"])

    def _done(
        self, act: Callable[..., PlaybookRun], request: Request, pk: str, **given: Any
    ) -> Response:
        try:
            row = act(int(pk), user=actor_of(request), now=timezone.now(), **given)
        except PlaybookRun.DoesNotExist as error:
            raise Http404 from error
        except runs.NotPossible as error:
            raise WrongState(str(error)) from error
        except runs.NotAllowed as error:
            raise PermissionDenied(str(error)) from error
        return Response(PlaybookRunDetailSerializer(row).data)


def _checked(kind: type[serializers.BaseSerializer[Any]], request: Request) -> dict[str, Any]:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    given: dict[str, Any] = body.validated_data
    return given
