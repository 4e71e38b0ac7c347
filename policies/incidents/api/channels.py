"""``/api/v1/notification-channels`` and ``/api/v1/notifications``: where notifications go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import django_filters
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import ErrorDetail
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.edge import names
from accounts.edge.errors import WrongState
from accounts.permissions import ViewsFleetOrEditsPolicies, ViewsFleetOrRunsPlaybooks
from fleet.api.actors import SeeingView, actor_of
from policies.incidents import actions, outbox, visible
from policies.incidents.api.silences import MatchersField
from policies.incidents.channels import check_destination, shown
from policies.incidents.channels.content import BadDestination, Destination
from policies.incidents.models import Delivery, NotificationChannel
from policies.incidents.outgoing import Forbidden

if TYPE_CHECKING:
    from rest_framework.serializers import BaseSerializer

    # Generic for the type checker alone.
    BaseViewSet = viewsets.ModelViewSet[NotificationChannel]
else:
    BaseViewSet = viewsets.ModelViewSet


#: Actions of the view that write a channel that is there.
_CHANGING = frozenset({"update", "partial_update", "destroy"})


class ChannelSerializer(serializers.ModelSerializer[NotificationChannel]):
    """``secret`` is taken and never shown; ``has_secret`` says whether there is one."""

    # Saved with the ``actor``, by which the entry in the audit log goes.

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
        extra_kwargs: ClassVar = {
            "target": {
                "help_text": "URL, or email addresses with commas. Of a URL the host alone is shown"
                " again; given back as it was shown, it is kept"
            }
        }

    _TAKEN = "There is a channel of this name."

    def validate_name(self, value: str) -> str:
        names.plain(value)
        return value

    def get_has_secret(self, channel: NotificationChannel) -> bool:
        return bool(channel.secret)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse where nothing could be sent to, and a secret that would go elsewhere unseen."""
        row = self.instance
        if row is not None:
            self._keep_target(row, attrs)
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

    def _keep_target(self, row: NotificationChannel, attrs: dict[str, Any]) -> None:
        """Put the address that is there for what is shown of it. One of another kind is none."""
        if attrs.get("target", shown(row.target)) != shown(row.target):
            return
        if row.target and attrs.get("kind", row.kind) != row.kind:
            message = "Give the address again: it was meant for another kind."
            raise serializers.ValidationError({"target": message})
        attrs["target"] = row.target

    def to_representation(self, instance: NotificationChannel) -> dict[str, Any]:
        """Return the channel, of its address what may be shown."""
        return {**super().to_representation(instance), "target": shown(instance.target)}

    def create(self, validated_data: dict[str, Any]) -> NotificationChannel:
        """Add a channel; one that somebody else adds meanwhile is refused as one that is there."""
        return self._saved(NotificationChannel(), validated_data)

    def update(
        self, instance: NotificationChannel, validated_data: dict[str, Any]
    ) -> NotificationChannel:
        """Change what was given. The caller has locked the row, since secrets belong to targets."""
        return self._saved(instance, validated_data)

    def _saved(self, channel: NotificationChannel, given: dict[str, Any]) -> NotificationChannel:
        try:
            actions.save_channel(given.pop("actor"), channel, **given)
        except IntegrityError as error:
            taken = ErrorDetail(self._TAKEN, "unique")
            raise serializers.ValidationError({"name": [taken]}) from error
        return channel


class ChannelViewSet(BaseViewSet):
    """Where notifications go."""

    queryset = NotificationChannel.objects.all()
    serializer_class = ChannelSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    filterset_fields: list[str] = []

    def get_queryset(self) -> QuerySet[NotificationChannel]:
        """Return the channels; one that is changed is locked until that is done."""
        rows: QuerySet[NotificationChannel] = super().get_queryset()
        return rows.select_for_update() if self.action in _CHANGING else rows

    @transaction.atomic
    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change a channel."""
        return super().update(request, *args, **kwargs)

    @transaction.atomic
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Delete a channel."""
        return super().destroy(request, *args, **kwargs)

    def perform_create(self, serializer: BaseSerializer[NotificationChannel]) -> None:
        serializer.save(actor=actor_of(self.request))

    def perform_update(self, serializer: BaseSerializer[NotificationChannel]) -> None:
        serializer.save(actor=actor_of(self.request))

    def perform_destroy(self, instance: NotificationChannel) -> None:
        actions.delete_channel(actor_of(self.request), instance)

    @extend_schema(request=None, responses={202: None})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a test message there. Whether it arrived stands in /api/v1/notifications."""
        try:
            actions.send_test(actor_of(request), self.get_object(), now=timezone.now())
        except actions.WrongState as error:
            raise WrongState(str(error)) from error
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
