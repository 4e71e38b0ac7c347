"""``/api/v1/agents``: who may push telemetry, and how each is doing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import django_filters
from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.edge import names
from accounts.edge.parameters import whole_number
from accounts.permissions import ViewsFleetOrManagesAgents
from fleet.api.actors import actor_of
from telemetry import enrollment
from telemetry.enrollment import Enrolled, Enrollment, EnrollmentError, NameTaken
from telemetry.models import Agent, AgentState

if TYPE_CHECKING:
    pass

#: The most agents that one request may enroll.
MAX_ENROLLED_AT_ONCE = 1000
#: The longest that an old token stays good beside a new one, s.
MAX_GRACE_S = 24 * 3600


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """An agent as it is shown. Never with its token."""

    state = serializers.SerializerMethodField()
    nodes = serializers.SlugRelatedField[Any](slug_field="name", many=True, read_only=True)
    sites = serializers.SlugRelatedField[Any](slug_field="name", many=True, read_only=True)

    class Meta:
        model = Agent
        fields = (
            "id",
            "name",
            "state",
            "nodes",
            "sites",
            "any_job",
            "hint",
            "previous_until",
            "created_at",
            "revoked_at",
            "last_seen_at",
            "lag_s",
            "skew_s",
            "version",
            "spooled_batches",
            "dropped_batches",
            "thinned_rows",
            "errors",
            "last_error",
            "refused_batches",
            "refused_rows",
            "last_refusal",
            "last_refused_at",
        )
        read_only_fields = fields

    def get_state(self, agent: Agent) -> AgentState:
        return agent.state(timezone.now(), settings.STALE_AFTER_S)


class EnrollmentSerializer(serializers.Serializer[Enrollment]):
    """An agent to enroll, with the nodes and sites (by name) that it may speak for."""

    name = serializers.CharField(max_length=200, validators=[names.plain])
    nodes = serializers.ListField(
        child=serializers.CharField(max_length=200), default=list, max_length=20_000
    )
    sites = serializers.ListField(
        child=serializers.CharField(max_length=200), default=list, max_length=1000
    )
    any_job = serializers.BooleanField(
        default=False,
        help_text="It may report on jobs that are not placed on its nodes, such as a replay's",
    )


class AgentChangeSerializer(serializers.Serializer[Agent]):
    """The fields of an agent that can be changed without a new token."""

    any_job = serializers.BooleanField()


class EnrolledSerializer(serializers.Serializer[Enrolled]):
    """An agent with its token, which is shown this once."""

    id = serializers.IntegerField(source="agent.pk")
    name = serializers.CharField(source="agent.name")
    token = serializers.CharField()


class AgentFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.ChoiceFilter(choices=AgentState.choices, method="filter_state")
    search = django_filters.CharFilter(
        method="filter_search",
        help_text="Part of the name of the agent, or of a node or site of it",
    )

    class Meta:
        model = Agent
        fields: list[str] = []

    def filter_state(self, agents: Any, name: str, value: str) -> QuerySet[Agent]:
        found: QuerySet[Agent] = agents.in_state(
            AgentState(value), timezone.now(), settings.STALE_AFTER_S
        )
        return found

    def filter_search(self, agents: Any, name: str, value: str) -> QuerySet[Agent]:
        found: QuerySet[Agent] = agents.search(value)
        return found


def _one_or_many(
    name: str, serializer: type[serializers.Serializer[Any]]
) -> PolymorphicProxySerializer:
    return PolymorphicProxySerializer(
        component_name=name,
        serializers=[serializer, serializer(many=True)],
        resource_type_field_name=None,
        many=False,
    )


_ROTATE = OpenApiParameter(
    "rotate",
    OpenApiTypes.INT,
    enum=[0, 1],
    description="1: an agent that exists gets a new token, and the nodes and sites given here.",
)
_GRACE = OpenApiParameter(
    "grace_s",
    {"type": "integer", "minimum": 0, "maximum": MAX_GRACE_S, "default": 0},
    description="For so long the old token stays good beside the new one, s. 0: for seconds.",
)


class AgentViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Agent]
):
    queryset = Agent.objects.prefetch_related("nodes", "sites")
    serializer_class = AgentSerializer
    permission_classes = (ViewsFleetOrManagesAgents,)
    filterset_class = AgentFilter

    @extend_schema(
        parameters=[_ROTATE],
        request=_one_or_many("EnrollmentOrList", EnrollmentSerializer),
        responses={201: _one_or_many("EnrolledOrList", EnrolledSerializer)},
    )
    def create(self, request: Request) -> Response:
        """Enroll one agent, or a list of them: all or none. Answers with the tokens, this once.

        A list is answered with a list, in the same order.
        """
        many = isinstance(request.data, list)
        body = EnrollmentSerializer(data=request.data, many=many)
        body.is_valid(raise_exception=True)
        rows = body.validated_data if many else [body.validated_data]
        if len(rows) > MAX_ENROLLED_AT_ONCE:
            raise ValidationError(f"At most {MAX_ENROLLED_AT_ONCE} agents at once.")
        wanted = [
            Enrollment(row["name"], tuple(row["nodes"]), tuple(row["sites"]), row["any_job"])
            for row in rows
        ]
        enrolled = self._enroll(request, wanted, many)
        answer = [EnrolledSerializer(one).data for one in enrolled]
        return Response(answer if many else answer[0], status=status.HTTP_201_CREATED)

    def _enroll(self, request: Request, wanted: list[Enrollment], many: bool) -> list[Enrolled]:
        rotate = request.query_params.get("rotate", "0")
        if rotate not in ("0", "1"):
            raise ValidationError({"rotate": "Give 0 or 1."})
        try:
            return enrollment.enroll(actor_of(request), wanted, rotate=rotate == "1")
        except EnrollmentError as error:
            raise _api_error(error, many) from error

    @extend_schema(request=AgentChangeSerializer, responses=AgentSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Say whether the agent may report on jobs that are not placed on its nodes."""
        agent = self.get_object()
        body = AgentChangeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        enrollment.allow_any_job(actor_of(request), agent, body.validated_data["any_job"])
        return Response(self.get_serializer(agent).data)

    @extend_schema(parameters=[_GRACE], request=None, responses=EnrolledSerializer)
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Give the agent a new token, shown this once. The old one ends after the grace."""
        grace = _grace(request)
        agent = self.get_object()
        token = enrollment.rotate(actor_of(request), agent, grace=grace)
        return Response(EnrolledSerializer(Enrolled(agent, token, created=False)).data)

    @extend_schema(request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """End the agent's token. Doing so twice does no harm."""
        agent = self.get_object()
        enrollment.revoke(actor_of(request), agent)
        return Response(self.get_serializer(agent).data)


def _grace(request: Request) -> timedelta:
    grace_s = whole_number(request.query_params.get("grace_s", "0"), most=MAX_GRACE_S)
    if grace_s is None:
        raise ValidationError({"grace_s": f"Give whole seconds, 0 to {MAX_GRACE_S}."})
    return timedelta(seconds=grace_s)


def _api_error(error: EnrollmentError, many: bool) -> APIException:
    code = "name_taken" if isinstance(error, NameTaken) else "unknown_name"
    place = f"[{error.index}].{error.field}" if many else error.field
    refusal = ValidationError({place: [ErrorDetail(str(error), code)]})
    if isinstance(error, NameTaken):
        refusal.status_code = status.HTTP_409_CONFLICT
    return refusal
