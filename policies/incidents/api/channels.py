"""``/api/v1/notification-channels`` and ``/api/v1/notifications``: where notifications go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import django_filters
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.edge import names
from accounts.edge.errors import WrongState
from accounts.permissions import ViewsFleetOrEditsPolicies, ViewsFleetOrRunsPlaybooks
from fleet.api.actors import SeeingView, actor_of
from policies.incidents import actions, notify, outbox, visible
from policies.incidents.api.silences import MatchersField
from policies.incidents.channels import check_destination
from policies.incidents.channels.content import BadDestination, Destination
from policies.incidents.models import Delivery, NotificationChannel
from policies.incidents.outgoing import Forbidden

if TYPE_CHECKING:
    from rest_framework.serializers import BaseSerializer

    # Generic for the type checker alone.
    BaseViewSet = viewsets.ModelViewSet[NotificationChannel]
else:
    BaseViewSet = viewsets.ModelViewSet


class ChannelSerializer(serializers.ModelSerializer[NotificationChannel]):
    """``secret`` is taken and never shown; ``has_secret`` says whether there is one."""

    matchers = MatchersField(required=False, help_text="All have to match; none: everything")
    secret = serializers.CharField(
        max_length=500, write_only=True, required=False, allow_blank=True, trim_whitespace=True
    )
    has_secret = serializers.SerializerMethodField()

    class Meta:
        model = NotificationChannel
        fields = (
            "id",
            "name",
            "kind",
            "target",
            "secret",
            "has_secret",
            "min_severity",
            "matchers",
            "enabled",
            "send_resolved",
            "created_at",
            "failures",
            "not_before",
            "last_error",
        )
        read_only_fields = ("id", "created_at", "failures", "not_before", "last_error")

    def validate_name(self, value: str) -> str:
        names.plain(value)
        return value

    def get_has_secret(self, channel: NotificationChannel) -> bool:
        return bool(channel.secret)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse where nothing could be sent to, and a secret that would go elsewhere unseen."""
        row = self.instance
        kind, target, secret = (
            attrs.get(name, getattr(row, name, "")) for name in ("kind", "target", "secret")
        )
        keeps = row is not None and row.secret and "secret" not in attrs
        if row is not None and keeps and (kind, target) != (row.kind, row.target):
            message = "Give the secret again: it was meant for another address."
            raise serializers.ValidationError({"secret": message})
        try:
            check_destination(kind, Destination(target, secret))
        except BadDestination as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        except Forbidden as error:
            raise serializers.ValidationError({"target": str(error)}) from error
        return attrs


class ChannelViewSet(BaseViewSet):
    """Where notifications go."""

    queryset = NotificationChannel.objects.all()
    serializer_class = ChannelSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    filterset_fields: list[str] = []

    @transaction.atomic
    def perform_create(self, serializer: BaseSerializer[NotificationChannel]) -> None:
        self._save("create", serializer)

    @transaction.atomic
    def perform_update(self, serializer: BaseSerializer[NotificationChannel]) -> None:
        self._save("change", serializer)

    def _save(self, what: str, serializer: BaseSerializer[NotificationChannel]) -> None:
        # Somebody has looked at it: what failed before is tried again.
        before = None if serializer.instance is None else audit.state(serializer.instance)
        channel = serializer.save(failures=0, not_before=None, last_error="")
        actions.record_channel(actor_of(self.request), what, channel, before, audit.state(channel))

    @transaction.atomic
    def perform_destroy(self, instance: NotificationChannel) -> None:
        actions.record_channel(
            actor_of(self.request), "delete", instance, audit.state(instance), None
        )
        instance.delete()

    @extend_schema(request=None, responses={202: None})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a test message there. Whether it arrived stands in /api/v1/notifications."""
        channel, actor, now = self.get_object(), actor_of(request), timezone.now()
        if not channel.enabled:
            raise WrongState(f"{channel.name} is switched off: switch it on first.")
        body = f"Asked for by {actor.get_username()}. Nothing is wrong."
        key = f"headroom-test-{channel.pk}-{now.timestamp():.6f}"
        with transaction.atomic():
            notify.send([channel.name], "Test message of Headroom", body, key=key, now=now)
            audit.record(actor, "channel.test", channel.name, kind=channel.kind)
        return Response(status=status.HTTP_202_ACCEPTED)


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    channel = serializers.CharField(source="channel.name", read_only=True)
    incident = serializers.SerializerMethodField()

    class Meta:
        model = Delivery
        fields = (
            "id",
            "channel",
            "incident",
            "key",
            "event",
            "subject",
            "state",
            "attempts",
            "queued_at",
            "next_at",
            "sent_at",
            "error",
        )
        read_only_fields = fields

    def get_incident(self, delivery: Delivery) -> str | None:
        return f"INC-{delivery.incident_id}" if delivery.incident_id else None


class DeliveryFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.ChoiceFilter(choices=Delivery.State.choices)
    channel = django_filters.CharFilter("channel__name", help_text="Name of a channel")
    incident = django_filters.NumberFilter("incident_id", help_text="12 for INC-12")
    event = django_filters.CharFilter("event")

    class Meta:
        model = Delivery
        fields: list[str] = []


class DeliveryViewSet(
    SeeingView, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Delivery]
):
    """Notifications and the state of their delivery, the newest first."""

    queryset = Delivery.objects.select_related("channel")
    serializer_class = DeliverySerializer
    permission_classes = (ViewsFleetOrRunsPlaybooks,)
    filterset_class = DeliveryFilter
    cursor_ordering = ("-id",)

    veiled_fields = visible.DELIVERY

    def get_queryset(self) -> QuerySet[Delivery]:
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return Delivery.objects.none()
        return Delivery.objects.seen_by(self.visibility).select_related("channel")

    def get_object(self) -> Delivery:
        """Return the object as the requesting user may see it."""
        found: Delivery = super().get_object()
        return self.visibility.veiled([found], *visible.DELIVERY)[0]

    @extend_schema(request=None, responses=DeliverySerializer)
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: str) -> Response:
        """Send a notification again that was given up."""
        delivery, now = self.get_object(), timezone.now()
        with transaction.atomic():
            if not outbox.revive(delivery, now=now):
                raise WrongState(f"It is {delivery.state}: only one that failed is sent again.")
            audit.record(
                actor_of(request), "notification.retry", delivery.key, channel=delivery.channel.name
            )
        return Response(DeliverySerializer(self.get_object()).data)
