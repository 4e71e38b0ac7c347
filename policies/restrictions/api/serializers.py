"""Restrictions in JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from accounts.edge.parameters import MomentField
from policies.restrictions.kinds import KINDS, LONGEST, RestrictionKind
from policies.restrictions.models import FleetBreaker, Restriction, RestrictionEvent
from policies.scopes import MOST_NAME, ScopeKind

KIND_CHOICES = [(kind.value, kind.value) for kind in RestrictionKind]
SCOPE_CHOICES = [(kind.value, kind.value) for kind in ScopeKind]


class RestrictionScopeSerializer(serializers.Serializer[Any]):
    """The scope of a restriction, by its name in the inventory or the queue."""

    kind = serializers.ChoiceField(SCOPE_CHOICES)
    name = serializers.CharField(max_length=MOST_NAME)


class RestrictionSerializer(serializers.ModelSerializer[Restriction]):
    scope = serializers.SerializerMethodField()
    unit = serializers.SerializerMethodField(help_text="Of the value; empty: the kind takes none")
    is_in_force = serializers.SerializerMethodField(help_text="Whether it has an effect now")

    class Meta:
        model = Restriction
        fields = (
            "id",
            "kind",
            "scope",
            "value",
            "unit",
            "reason",
            "owner",
            "cause",
            "evidence",
            "state",
            "is_in_force",
            "version",
            "issued_at",
            "effect_at",
            "starts_at",
            "expires_at",
            "pending_why",
            "pending_value",
            "refused_value",
            "decided_by",
            "ended_at",
            "ended_by",
            "ended_why",
        )
        read_only_fields = fields

    def get_scope(self, row: Restriction) -> dict[str, str]:
        return {"kind": row.scope_kind, "name": row.scope_name}

    def get_unit(self, row: Restriction) -> str:
        return KINDS[RestrictionKind(row.kind)].unit

    def get_is_in_force(self, row: Restriction) -> bool:
        now = timezone.now()
        has_begun = row.starts_at is None or row.starts_at <= now
        return row.state == Restriction.State.IN_FORCE and has_begun and row.expires_at > now


class RestrictionIssueSerializer(serializers.Serializer[Any]):
    """A restriction that a person wants. It needs an end: ``expires_at``, or ``for_s``."""

    kind = serializers.ChoiceField(KIND_CHOICES)
    scope = RestrictionScopeSerializer()
    value = serializers.FloatField(required=False, allow_null=True, default=None)
    reason = serializers.CharField(max_length=500)
    starts_at = MomentField(
        required=False,
        default=None,
        allow_null=True,
        help_text="When it has to be met; only power_budget_w may be announced. Left out: at once",
    )
    expires_at = MomentField(required=False, default=None, allow_null=True)
    for_s = serializers.FloatField(
        required=False,
        default=None,
        allow_null=True,
        min_value=1,
        max_value=LONGEST.total_seconds(),
        help_text="In place of expires_at: for how long from its start, s",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs["expires_at"] is None) == (attrs["for_s"] is None):
            raise serializers.ValidationError(
                {"expires_at": "Give expires_at or for_s: everything ends by itself."}
            )
        return attrs


class RestrictionExtendSerializer(serializers.Serializer[datetime]):
    expires_at = serializers.DateTimeField()


class RestrictionReasonSerializer(serializers.Serializer[Any]):
    """Why, and the version that the person has seen: with another in force nothing is done."""

    reason = serializers.CharField(max_length=500)
    version = serializers.IntegerField(required=False, default=0, min_value=0)


class RestrictionApproveSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField(required=False, default=0, min_value=0)


class RestrictionEventSerializer(serializers.ModelSerializer[RestrictionEvent]):
    class Meta:
        model = RestrictionEvent
        fields = ("id", "at", "kind", "by", "text", "data", "cycle")
        read_only_fields = fields


class RestrictionLedgerSerializer(serializers.Serializer[Any]):
    """The ledger of a restriction: its events, their summary, and the outcome."""

    summary = serializers.CharField(help_text="As far as is known: what came of its newest value")
    outcome = serializers.CharField(
        allow_null=True, help_text="Null until the verdict, five minutes after it came into force"
    )
    events = RestrictionEventSerializer(many=True)


class EffectiveRestrictionSerializer(serializers.Serializer[Any]):
    """All of one kind that holds for a scope, the strictest first: that is the value."""

    kind = serializers.ChoiceField(KIND_CHOICES)
    value = serializers.FloatField(allow_null=True)
    restrictions = RestrictionSerializer(many=True)


class FleetBreakerSerializer(serializers.ModelSerializer[FleetBreaker]):
    class Meta:
        model = FleetBreaker
        fields = ("is_open", "reason", "by", "at")
        read_only_fields = ("by", "at")
        extra_kwargs = {
            "is_open": {"required": True, "help_text": "Open: no effect is added"},
            "reason": {"required": True, "allow_blank": False},
        }
