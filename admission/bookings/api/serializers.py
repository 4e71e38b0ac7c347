"""Bookings in JSON."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.edge.parameters import MomentField
from admission.bookings.actions import Asked
from admission.bookings.models import Booking
from admission.jobs.models import Project
from policies.scopes import MOST_NAME, Scope, ScopeKind

__all__ = ["PLACES", "BookingAskSerializer", "BookingEndSerializer", "BookingSerializer"]

#: What may be booked as a whole.
PLACES = tuple(
    kind.value
    for kind in (
        ScopeKind.SITE, ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.NODE,
    )
)  # fmt: skip


class BookingSerializer(serializers.ModelSerializer[Booking]):
    """A booking. Whose it is, is told to those who may know of the project."""

    kind = serializers.SerializerMethodField(help_text="reservation or maintenance")
    state = serializers.SerializerMethodField(
        help_text="ahead, running, over, or ended: before its time"
    )
    what = serializers.CharField(help_text="In words")
    project = serializers.SerializerMethodField(help_text="null: maintenance, or not yours")
    nodes = serializers.ListField(child=serializers.CharField(), help_text="Its hosts")

    class Meta:
        model = Booking
        fields = (
            "id", "kind", "state", "what", "project", "scope_kind", "scope_name", "nodes", "gpus",
            "starts_at", "ends_at", "reason", "made_by", "made_at", "ended_at", "ended_by",
        )  # fmt: skip
        read_only_fields = fields

    def get_kind(self, row: Booking) -> str:
        return "reservation" if row.project_id else "maintenance"

    def get_state(self, row: Booking) -> str:
        return row.state_at(timezone.now())

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_project(self, row: Booking) -> str | None:
        is_known = row.is_known_to(self.context["known"])
        return row.project.name if row.project and is_known else None

    def to_representation(self, instance: Booking) -> dict[str, Any]:
        """Return a booking without the words of people about projects that are not the reader's."""
        found = super().to_representation(instance)
        if not instance.is_known_to(self.context["known"]):
            found["reason"] = ""
        return found


class BookingAskSerializer(serializers.Serializer[Any]):
    """A place, or hosts with so many GPUs; for a project, or for maintenance."""

    project = serializers.CharField(
        max_length=60, required=False, allow_null=True, default=None, help_text="null: maintenance"
    )
    scope_kind = serializers.ChoiceField(choices=PLACES, required=False, allow_blank=True)
    scope_name = serializers.CharField(max_length=MOST_NAME, required=False, allow_blank=True)
    gpus = serializers.IntegerField(min_value=1, max_value=10**6, required=False, allow_null=True)
    model = serializers.CharField(
        max_length=200, required=False, allow_blank=True, default="",
        help_text="Of hosts for gpus; empty: any",
    )  # fmt: skip
    starts_at = MomentField()
    ends_at = MomentField()
    reason = serializers.CharField(max_length=500)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """A place or a number of GPUs is given, and the project is there."""
        has_place = bool(attrs.get("scope_kind") and attrs.get("scope_name"))
        if has_place == bool(attrs.get("gpus")):
            message = "Give either scope_kind and scope_name, or gpus."
            raise serializers.ValidationError({"gpus": message})
        name = attrs["project"]
        if name is None:
            if not has_place:
                message = "Maintenance is of a place: give scope_kind and scope_name."
                raise serializers.ValidationError({"gpus": message})
            return attrs
        attrs["found"] = Project.objects.filter(name=name).first()
        if attrs["found"] is None:
            raise serializers.ValidationError({"project": f"There is no project {name!r}."})
        return attrs

    def asked(self) -> Asked:
        """Return what is asked for, once it is valid."""
        given: dict[str, Any] = self.validated_data
        place = given.get("scope_kind")
        return Asked(
            starts_at=given["starts_at"],
            ends_at=given["ends_at"],
            reason=given["reason"],
            project=given.get("found"),
            scope=Scope(ScopeKind(place), given["scope_name"]) if place else None,
            gpus=given.get("gpus") or 0,
            model=given["model"],
        )


class BookingEndSerializer(serializers.Serializer[Any]):
    why = serializers.CharField(max_length=500, default="", allow_blank=True)
