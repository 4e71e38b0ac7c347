"""``/api/v1/incidents``: incidents, their evidence, and their timeline."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import Count, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.edge.errors import WrongState
from accounts.edge.parameters import MomentField, MomentFilter
from accounts.permissions import ViewsFleetOrRunsPlaybooks
from accounts.visibility import Visibility
from fleet import snapshot
from fleet.api.actors import SeeingView, actor_of
from fleet.snapshot import FleetArrays
from policies import standing
from policies.firings import Severity
from policies.incidents import actions, visible
from policies.incidents.evidence import series_of
from policies.incidents.models import Incident, IncidentMember, TimelineEntry

#: The detail of an incident shows so many members and timeline entries; the lists have them all.
SHOWN = 200
_CHOICES = [(each.value, each.value) for each in Severity]
_NUMBER = OpenApiParameter(
    "number", OpenApiTypes.STR, OpenApiParameter.PATH, description="`INC-12`, or `12`"
)


class EvidenceSerializer(serializers.Serializer[Any]):
    """A link to the evidence of a firing."""

    kind = serializers.CharField(help_text="`series`")
    text = serializers.CharField()
    href = serializers.CharField(help_text="Path on this server")


class MemberSerializer(serializers.ModelSerializer[IncidentMember]):
    """A rule on a scope. ``values`` are those that its condition read when it fired last."""

    state = serializers.SerializerMethodField(help_text="firing, cleared or dismissed")
    silenced = serializers.SerializerMethodField(help_text="Whether nobody is told of it")
    silence = serializers.IntegerField(source="silence_id", allow_null=True, read_only=True)
    evidence = serializers.SerializerMethodField()

    class Meta:
        model = IncidentMember
        fields = (
            "id",
            "key",
            "rule",
            "version",
            "scope_kind",
            "scope_name",
            "site",
            "severity",
            "summary",
            "values",
            "labels",
            "playbook",
            "since",
            "fired_at",
            "cleared_at",
            "times",
            "state",
            "silenced",
            "silence",
            "inhibited_by",
            "muted_until",
            "muted_by",
            "muted_reason",
            "evidence",
        )
        read_only_fields = fields

    def get_state(self, member: IncidentMember) -> str:
        if member.cleared_at is not None:
            return "cleared"
        return "dismissed" if member.dismissed else "firing"

    def get_silenced(self, member: IncidentMember) -> bool:
        muted = member.muted_until is not None and member.muted_until > timezone.now()
        return muted or member.silence_id is not None

    @extend_schema_field(EvidenceSerializer(many=True))
    def get_evidence(self, member: IncidentMember) -> list[dict[str, str]]:
        fleet: FleetArrays = self.context.get("fleet") or snapshot.current()
        return series_of(member, fleet)


class TimelineSerializer(serializers.ModelSerializer[TimelineEntry]):
    class Meta:
        model = TimelineEntry
        fields = ("id", "at", "kind", "by", "text", "data")
        read_only_fields = fields


class IncidentSerializer(serializers.ModelSerializer[Incident]):
    number = serializers.CharField(read_only=True)
    firing = serializers.IntegerField(read_only=True, help_text="Members that fire")
    members = serializers.IntegerField(source="all_members", read_only=True)

    class Meta:
        model = Incident
        fields: tuple[str, ...] = (
            "number",
            "id",
            "title",
            "rule",
            "severity",
            "state",
            "site",
            "scope_kind",
            "scope_name",
            "playbook",
            "firing",
            "members",
            "opened_at",
            "acknowledged_at",
            "acknowledged_by",
            "assignee",
            "quiet_since",
            "resolved_at",
            "resolved_by",
            "resolution",
            "reopened_count",
        )
        read_only_fields: tuple[str, ...] = fields


class AnswerSerializer(serializers.Serializer[Any]):
    """What is done about a firing."""

    member = serializers.IntegerField(help_text="Id of the member")
    token = serializers.CharField(
        help_text="active, waits_for_a_person, starting, back_off, given_up, no_playbook, "
        "explained, cleared or dismissed"
    )
    text = serializers.CharField()
    run = serializers.IntegerField(allow_null=True, help_text="Of its playbook")
    summary = serializers.CharField(help_text="That of its rule, with today's values")


class IncidentDetailSerializer(IncidentSerializer):
    """With the first of its members, and the newest of its timeline, oldest first."""

    now = serializers.SerializerMethodField(help_text="What it is now; the title says what it was")
    answers = serializers.SerializerMethodField()
    first_members = MemberSerializer(many=True, read_only=True)
    timeline = serializers.SerializerMethodField()

    class Meta(IncidentSerializer.Meta):
        fields = (*IncidentSerializer.Meta.fields, "now", "answers", "first_members", "timeline")
        read_only_fields = fields

    def to_representation(self, incident: Incident) -> dict[str, Any]:
        members = incident.first_members  # type: ignore[attr-defined]
        self._standing = standing.of(incident, members, timezone.now())
        shown: dict[str, Any] = super().to_representation(incident)
        return shown

    def get_now(self, incident: Incident) -> str:
        return str(self.context["visibility"].data(self._standing.text))

    @extend_schema_field(AnswerSerializer(many=True))
    def get_answers(self, incident: Incident) -> list[dict[str, Any]]:
        found = self._standing
        told = [
            {"member": pk, "token": each.token, "text": each.text, "run": each.run,
             "summary": found.summaries.get(pk, "")}
            for pk, each in found.answers.items()
        ]  # fmt: skip
        seen: list[dict[str, Any]] = self.context["visibility"].data(told)
        return seen

    @extend_schema_field(TimelineSerializer(many=True))
    def get_timeline(self, incident: Incident) -> list[dict[str, Any]]:
        newest = incident.timeline.order_by("-at", "-id")[:SHOWN]
        seen = visible.entries(newest, self.context["visibility"])
        return [dict(TimelineSerializer(entry).data) for entry in reversed(seen)]


class AssignSerializer(serializers.Serializer[Any]):
    assignee = serializers.CharField(
        max_length=150, allow_blank=True, help_text="User name; empty: nobody"
    )


class CommentSerializer(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=10_000)


class CloseSerializer(serializers.Serializer[Any]):
    reason = serializers.CharField(max_length=1000)


class MuteSerializer(serializers.Serializer[Any]):
    member = serializers.IntegerField(min_value=1, help_text="Id of a member of the incident")
    until = MomentField(allow_null=True, default=None, help_text="Null: let it be heard again")
    reason = serializers.CharField(max_length=500, default="", allow_blank=True)


class IncidentFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(
        choices=Incident.State.choices, help_text="May be given several times"
    )
    severity = django_filters.ChoiceFilter(choices=_CHOICES)
    site = django_filters.CharFilter("site", help_text="Name of a site")
    rule = django_filters.CharFilter("rule", help_text="Name of a rule")
    assignee = django_filters.CharFilter("assignee", help_text="User name")
    scope = django_filters.CharFilter(
        method="filter_scope", help_text="Name of a scope that one of its members is about"
    )
    since = MomentFilter("opened_at", "gte")
    until = MomentFilter("opened_at", "lt")

    class Meta:
        model = Incident
        fields: list[str] = []

    def filter_scope(self, incidents: Any, name: str, value: str) -> QuerySet[Incident]:
        visibility = Visibility(actor_of(self.request))
        about = IncidentMember.objects.filter(visibility.seen_rows(), scope_name=value)
        found: QuerySet[Incident] = incidents.filter(pk__in=about.values("incident"))
        return found


def _count(which: Q) -> Coalesce:
    members = IncidentMember.objects.filter(which, incident=OuterRef("pk")).order_by()
    counted = members.values("incident").annotate(number=Count("pk")).values("number")
    return Coalesce(Subquery(counted), 0)


class IncidentViewSet(
    SeeingView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Incident]
):
    """Incidents, the newest first."""

    queryset = Incident.objects.all()
    serializer_class = IncidentSerializer
    permission_classes = (ViewsFleetOrRunsPlaybooks,)
    filterset_class = IncidentFilter
    cursor_ordering: tuple[str, ...] = ("-opened_at", "-id")
    lookup_url_kwarg = "number"
    veiled_fields: tuple[str, ...] = visible.INCIDENT

    def get_queryset(self) -> QuerySet[Incident]:
        # Counted for the rows of the page alone: an incident may have ten thousand members.
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return Incident.objects.none()
        return Incident.objects.seen_by(self.visibility).annotate(
            all_members=_count(Q()), firing=_count(Q(cleared_at=None, dismissed=False))
        )

    def get_object(self) -> Incident:
        given = self.kwargs["number"]
        incident = self.get_queryset().filter(pk=visible.pk_of(given)).first()
        if incident is None:
            raise Http404(f"There is no incident {given}.")
        self.check_object_permissions(self.request, incident)
        return incident

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "fleet": snapshot.current()}

    @extend_schema(parameters=[_NUMBER], responses=IncidentDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One incident, with members, evidence and timeline."""
        return self._answer(self.get_object())

    def _answer(self, incident: Incident) -> Response:
        found = (
            self.get_queryset()
            .prefetch_related(
                Prefetch(
                    "members",
                    IncidentMember.objects.filter(self.visibility.seen_rows()).order_by(
                        "cleared_at", "id"
                    )[:SHOWN],
                    to_attr="first_members",
                )
            )
            .get(pk=incident.pk)
        )
        first = visible.members(found.first_members, self.visibility)
        (seen,) = visible.incidents([found], self.visibility)
        seen.first_members = first  # type: ignore[attr-defined]
        context = self.get_serializer_context()
        return Response(IncidentDetailSerializer(seen, context=context).data)

    @extend_schema(parameters=[_NUMBER], responses=TimelineSerializer(many=True), filters=False)
    @action(detail=True, cursor_ordering=("-at", "-id"))
    def timeline(self, request: Request, number: str) -> Response:
        """All that happened, the newest first."""
        rows = self.get_object().timeline.all()
        return self._page(TimelineSerializer, rows, visible.ENTRY)

    @extend_schema(parameters=[_NUMBER], responses=MemberSerializer(many=True), filters=False)
    @action(detail=True, cursor_ordering=("id",))
    def members(self, request: Request, number: str) -> Response:
        """All firings that it has had."""
        rows = self.get_object().members.filter(self.visibility.seen_rows())
        return self._page(MemberSerializer, rows, visible.MEMBER)

    def _page(self, serializer: Any, rows: QuerySet[Any], fields: tuple[str, ...]) -> Response:
        self.veiled_fields = fields
        page = self.paginate_queryset(rows)
        shown = serializer(page, many=True, context=self.get_serializer_context())
        return self.get_paginated_response(shown.data)

    @extend_schema(parameters=[_NUMBER], request=None, responses=IncidentDetailSerializer)
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, number: str) -> Response:
        """Say that you are on it. Nothing is repeated any more."""
        return self._do(actions.acknowledge)

    @extend_schema(
        parameters=[_NUMBER], request=AssignSerializer, responses=IncidentDetailSerializer
    )
    @action(detail=True, methods=["post"])
    def assign(self, request: Request, number: str) -> Response:
        """Give it to somebody."""
        return self._do(actions.assign, assignee=self._body(AssignSerializer)["assignee"])

    @extend_schema(
        parameters=[_NUMBER], request=CommentSerializer, responses=IncidentDetailSerializer
    )
    @action(detail=True, methods=["post"])
    def comment(self, request: Request, number: str) -> Response:
        """Add a comment to the timeline."""
        return self._do(actions.comment, text=self._body(CommentSerializer)["text"])

    @extend_schema(
        parameters=[_NUMBER], request=CloseSerializer, responses=IncidentDetailSerializer
    )
    @action(detail=True, methods=["post"])
    def close(self, request: Request, number: str) -> Response:
        """Resolve it by hand. Members that still fire do not count until they have cleared once."""
        return self._do(actions.close, reason=self._body(CloseSerializer)["reason"])

    @extend_schema(parameters=[_NUMBER], request=MuteSerializer, responses=IncidentDetailSerializer)
    @action(detail=True, methods=["post"], url_path="silence-member", url_name="silence-member")
    def silence_member(self, request: Request, number: str) -> Response:
        """Keep one member quiet for a while; the others are told of as before."""
        incident, body = self.get_object(), self._body(MuteSerializer)
        member = incident.members.filter(pk=body["member"]).first()
        if member is None:
            message = f"{incident.number} has no member {body['member']}."
            raise serializers.ValidationError({"member": message})
        if body["until"] and not body["reason"]:
            raise serializers.ValidationError({"reason": "Say why."})
        actor, now = actor_of(request), timezone.now()
        actions.mute_member(actor, member, body["until"], body["reason"], now=now)
        return self._answer(incident)

    def _body(self, kind: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        body = kind(data=self.request.data)
        body.is_valid(raise_exception=True)
        validated: dict[str, Any] = body.validated_data
        return validated

    def _do(self, what: Any, **arguments: Any) -> Response:
        incident = self.get_object()
        try:
            what(actor_of(self.request), incident, *arguments.values(), now=timezone.now())
        except actions.WrongState as error:
            raise WrongState(str(error)) from error
        return self._answer(incident)
