"""``/api/v1/silences``: which notifications are held back, until when, and why."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import MomentField, check_names
from accounts.permissions import ViewsFleet, ViewsFleetOrRunsPlaybooks
from fleet.api.actors import SeeingView, actor_of
from policies.incidents import actions, declared, visible
from policies.incidents.inhibition import Inhibition, Relation
from policies.incidents.matchers import MAX_MATCHERS, BadMatcher, parse_matchers
from policies.incidents.models import Silence

_STATES = ("pending", "active", "expired")


class MatchersField(serializers.ListField):
    """Matchers as texts, such as ``rule="rack-power"``."""

    child = serializers.CharField(max_length=300)

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_MATCHERS, **options)

    def to_internal_value(self, data: Any) -> list[str]:
        """Return the texts as they are given. Each has to be a valid matcher."""
        texts: list[str] = super().to_internal_value(data)
        for index, text in enumerate(texts):
            try:
                parse_matchers([text])
            except BadMatcher as error:
                raise serializers.ValidationError({str(index): str(error)}) from error
        return texts


class SilenceSerializer(serializers.ModelSerializer[Silence]):
    matchers = MatchersField(help_text='All have to match: `["rule=\\"rack-power\\""]`')
    starts_at = MomentField(required=False, help_text="Without it: now")
    expires_at = MomentField()
    state = serializers.SerializerMethodField()

    class Meta:
        model = Silence
        fields = (
            "id",
            "matchers",
            "author",
            "reason",
            "state",
            "created_at",
            "starts_at",
            "expires_at",
            "warned_at",
        )
        read_only_fields = ("id", "author", "created_at", "warned_at")

    @extend_schema_field(serializers.ChoiceField(_STATES))
    def get_state(self, silence: Silence) -> str:
        now = timezone.now()
        if silence.expires_at <= now:
            return "expired"
        return "active" if silence.starts_at <= now else "pending"


class SilenceFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.ChoiceFilter(
        choices=[(each, each) for each in _STATES], method="filter_state"
    )
    author = django_filters.CharFilter("author", help_text="User name")

    class Meta:
        model = Silence
        fields: list[str] = []

    def filter_state(self, silences: Any, name: str, value: str) -> QuerySet[Silence]:
        now = timezone.now()
        found: QuerySet[Silence]
        if value == "expired":
            found = silences.filter(expires_at__lte=now)
        elif value == "active":
            found = silences.active(now)
        else:
            found = silences.filter(starts_at__gt=now, expires_at__gt=now)
        return found


class SilenceViewSet(
    SeeingView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Silence]
):
    """Silences, the newest first. They are never removed: each stays on record, with its author."""

    queryset = Silence.objects.all()
    serializer_class = SilenceSerializer
    permission_classes = (ViewsFleetOrRunsPlaybooks,)
    filterset_class = SilenceFilter
    cursor_ordering = ("-id",)
    veiled_fields = visible.SILENCE

    def get_object(self) -> Silence:
        """Return the object as the requesting user may see it."""
        found: Silence = super().get_object()
        return self.visibility.veiled([found], *visible.SILENCE)[0]

    @extend_schema(responses={201: SilenceSerializer})
    def create(self, request: Request) -> Response:
        """Add a silence. Firings that match are still recorded, and acted upon."""
        body = SilenceSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given, now = body.validated_data, timezone.now()
        silence = actions.create_silence(
            actor_of(request),
            matchers=given["matchers"],
            reason=given["reason"],
            starts_at=given.get("starts_at") or now,
            expires_at=given["expires_at"],
            now=now,
        )
        return Response(SilenceSerializer(silence).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=SilenceSerializer)
    @action(detail=True, methods=["post"])
    def end(self, request: Request, pk: str) -> Response:
        """End it now. Doing so twice does no harm."""
        silence = actions.end_silence(actor_of(request), self.get_object(), now=timezone.now())
        return Response(SilenceSerializer(silence).data)


class InhibitionSerializer(serializers.Serializer[Inhibition]):
    name = serializers.CharField()
    source = serializers.ListField(child=serializers.CharField())  # type: ignore[assignment]
    target = serializers.ListField(child=serializers.CharField())
    relation = serializers.ChoiceField(list(Relation))


class InhibitionsView(APIView):
    """``/api/v1/inhibitions``: which firings explain which others, in order of precedence."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=InhibitionSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Return those in force, as they are declared."""
        check_names(request.query_params, ("format",))
        return Response(
            [
                {
                    "name": each.name,
                    "source": [str(matcher) for matcher in each.source],
                    "target": [str(matcher) for matcher in each.target],
                    "relation": each.relation.value,
                }
                for each in declared.inhibitions()
            ]
        )
