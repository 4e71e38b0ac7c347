"""Restrictions, their ledger, and the fleet breaker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db import models
from django.db.models import Q

from accounts.visibility import Visibility
from policies.restrictions.book import LIVE, PERSON, LineKind, Named, State
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce, limit_id
from policies.scopes import MOST_NAME, Scope, ScopeKind

__all__ = [
    "FleetBreaker",
    "Restriction",
    "RestrictionEvent",
    "RestrictionGeneration",
]


class RestrictionQuerySet(models.QuerySet["Restriction"]):
    def live(self) -> RestrictionQuerySet:
        """Those whose owner wants them, as far as is known: in force, held or refused."""
        return self.filter(state__in=Restriction.LIVE)

    def standing(self, now: datetime) -> RestrictionQuerySet:
        """Those in force at ``now``, or announced, whether or not a sweep has passed."""
        return self.filter(state=Restriction.State.IN_FORCE, expires_at__gt=now)

    def in_force(self, now: datetime) -> RestrictionQuerySet:
        """Those that have to be met at ``now``, whether or not a sweep has passed."""
        has_begun = Q(starts_at=None) | Q(starts_at__lte=now)
        return self.standing(now).filter(has_begun)

    def waiting(self, now: datetime) -> RestrictionQuerySet:
        """Those of which a person has to decide something."""
        held = Q(state=Restriction.State.PENDING_APPROVAL) | Q(pending_value__isnull=False)
        return self.live().filter(held, expires_at__gt=now).exclude(state=Restriction.State.REFUSED)

    def uncounted_by_people(self, now: datetime) -> RestrictionQuerySet:
        """Those in force at ``now`` without any person having issued or approved them."""
        return self.standing(now).filter(decided_by="").exclude(owner__startswith=PERSON)

    def seen_by(self, visibility: Visibility) -> RestrictionQuerySet:
        """Those that the reader may see: not about a job that is hidden from them."""
        return self.filter(visibility.seen_rows())

    def of_owners(self, owners: Iterable[str]) -> RestrictionQuerySet:
        return self.filter(owner__in=set(owners))


class Restriction(Named, models.Model):
    """A lease on an effect: kind and value, on a scope, until when, and its present state."""

    State = State
    LIVE = LIVE

    kind = models.CharField(max_length=40, choices=[(k.value, k.value) for k in RestrictionKind])
    scope_kind = models.CharField(max_length=20, choices=[(k.value, k.value) for k in ScopeKind])
    scope_name = models.CharField(max_length=MOST_NAME)
    value = models.FloatField(null=True, help_text="In the unit of the kind; null: it takes none")
    pending_value = models.FloatField(null=True, help_text="A stricter one that waits for a person")
    refused_value = models.FloatField(
        null=True, help_text="A person refused this one: nothing so strict is asked again"
    )
    reason = models.CharField(max_length=500)
    owner = models.CharField(max_length=200, help_text="rule:NAME, playbook:RUN/STEP or user:NAME")
    cause = models.CharField(max_length=300, help_text="Stays the same for as long as the reason")
    evidence = models.JSONField(default=dict)
    state = models.CharField(max_length=20, choices=State.choices)
    version = models.IntegerField(default=1, help_text="Grows as its value or its state changes")
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField(help_text="It ends then by itself")
    starts_at = models.DateTimeField(
        null=True, help_text="When it has to be met, where it was announced; null: at once"
    )
    cycle = models.IntegerField(default=0, help_text="How many values have come into force")
    effect_at = models.DateTimeField(null=True, help_text="When the last of them did")
    pending_why = models.CharField(max_length=500, blank=True)
    decided_by = models.CharField(max_length=200, blank=True, help_text="Who approved it")
    ended_at = models.DateTimeField(null=True, help_text="When it last ceased to have an effect")
    ended_by = models.CharField(max_length=200, blank=True)
    ended_why = models.CharField(max_length=500, blank=True)

    objects = RestrictionQuerySet.as_manager()

    class Meta:
        ordering = ["-issued_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "cause", "kind", "scope_kind", "scope_name"],
                condition=Q(state__in=["pending_approval", "in_force", "refused"]),
                name="restriction_one_live",
            ),
            models.CheckConstraint(
                condition=~Q(state="in_force") | Q(effect_at__isnull=False),
                name="restriction_in_force_since",
            ),
        ]
        indexes = [
            models.Index(fields=["-issued_at", "-id"], name="restriction_issued"),
            models.Index(
                fields=["expires_at"],
                condition=Q(state__in=["pending_approval", "in_force", "refused"]),
                name="restriction_live_expires",
            ),
            models.Index(fields=["effect_at"], name="restriction_effect"),
            models.Index(fields=["scope_kind", "scope_name"], name="restriction_scope"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} on {self.scope}: {self.state}"

    @property
    def in_force_since(self) -> datetime:
        """Since when its value is in force, or was to the end."""
        if self.effect_at is None:
            raise ValueError(f"{self} never had an effect")
        return self.effect_at

    @property
    def limit_id(self) -> str:
        """The id by which agents know it."""
        return limit_id(self.pk)


def read_in_force(now: datetime) -> InForce:
    """Return the restrictions in force at ``now``, and those that are announced. One query."""
    # As tuples: to make thousands of model instances takes ten times as long.
    rows = Restriction.objects.standing(now).order_by("id").values_list(*_STANDING)
    return InForce.standing(
        now,
        (
            ActiveRestriction(pk, RestrictionKind(kind), Scope(ScopeKind(scope_kind), name), *rest)
            for pk, kind, scope_kind, name, *rest in rows
        ),
    )


#: The fields of ActiveRestriction, in their order.
_STANDING = (
    "id", "kind", "scope_kind", "scope_name", "value", "reason", "owner", "cause", "issued_at",
    "expires_at", "starts_at",
)  # fmt: skip


class RestrictionEvent(models.Model):
    """One line of the ledger. Rows are added and never changed: a trigger sees to it."""

    Kind = LineKind

    #: These are written once for each value.
    ONCE = (Kind.ACKNOWLEDGED, Kind.APPLIED, Kind.MEASURED, Kind.VERDICT)

    restriction = models.ForeignKey(Restriction, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=20, choices=Kind.choices)
    by = models.CharField(max_length=200, help_text="user name, owner, or 'system'")
    text = models.CharField(max_length=1000, blank=True)
    data = models.JSONField(default=dict)
    cycle = models.IntegerField(default=0, help_text="Which of its values it is about")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["restriction", "cycle", "kind"],
                condition=Q(kind__in=["acknowledged", "applied", "measured", "verdict"]),
                name="restriction_event_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.restriction_id} {self.kind} at {self.at:%H:%M:%S}"


class FleetBreaker(models.Model):
    """One row: whether policies may add effects. Open: they may not."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    is_open = models.BooleanField(default=False)
    by = models.CharField(max_length=200, blank=True)
    reason = models.CharField(max_length=500, blank=True)
    at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="fleet_breaker_one_row")]

    def __str__(self) -> str:
        return "open" if self.is_open else "closed"

    @staticmethod
    def current() -> FleetBreaker:
        """Return the breaker. One query."""
        return FleetBreaker.objects.first() or FleetBreaker()


class RestrictionGeneration(models.Model):
    """One row, with a number that differs after every change of a restriction, by triggers."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField()

    def __str__(self) -> str:
        return str(self.number)

    @staticmethod
    def current() -> int:
        """Return the number now, or 0. One query."""
        return RestrictionGeneration.objects.values_list("number", flat=True).first() or 0
