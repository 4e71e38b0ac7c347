"""``/api/v1/restrictions``: those in force, their ledgers, and the actions of people on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import django_filters
from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import check_names
from accounts.permissions import ViewsFleetOrEditsPolicies, ViewsFleetOrRunsPlaybooks
from accounts.visibility import Visibility
from fleet import snapshot
from fleet.api.actors import SeeingView, actor_of
from policies.restrictions import actions, store, visible
from policies.restrictions.api.serializers import (
    KIND_CHOICES,
    SCOPE_CHOICES,
    EffectiveRestrictionSerializer,
    FleetBreakerSerializer,
    RestrictionApproveSerializer,
    RestrictionExtendSerializer,
    RestrictionIssueSerializer,
    RestrictionLedgerSerializer,
    RestrictionReasonSerializer,
    RestrictionSerializer,
)
from policies.restrictions.kinds import BadRestriction, RestrictionKind, Wanted
from policies.restrictions.models import FleetBreaker, Restriction, RestrictionEvent
from policies.scopes import Scope, ScopeKind, UnknownScope

if TYPE_CHECKING:
    from accounts.models import User


class RestrictionFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``live``: 1 for those that their owners want, 0 for those that are over."""

    kind = django_filters.ChoiceFilter(choices=KIND_CHOICES)
    state = django_filters.ChoiceFilter(choices=Restriction.State.choices)
    scope_kind = django_filters.ChoiceFilter(choices=SCOPE_CHOICES)
    scope = django_filters.CharFilter("scope_name", help_text="Name of a scope")
    owner = django_filters.CharFilter("owner", help_text="rule:NAME, playbook:RUN/STEP, user:NAME")
    live = django_filters.ChoiceFilter(choices=[("1", "live"), ("0", "over")], method="filter_live")
    in_force = django_filters.ChoiceFilter(
        choices=[("1", "with an effect now")], method="filter_in_force"
    )
    waiting = django_filters.ChoiceFilter(
        choices=[("1", "waiting for a person")], method="filter_waiting"
    )

    class Meta:
        model = Restriction
        fields: list[str] = []

    def filter_live(self, rows: Any, name: str, value: str) -> QuerySet[Restriction]:
        now = timezone.now()
        live: QuerySet[Restriction] = rows.live().filter(expires_at__gt=now)
        if value == "1":
            return live
        over: QuerySet[Restriction] = rows.exclude(pk__in=live.values("pk"))
        return over

    def filter_in_force(self, rows: Any, name: str, value: str) -> QuerySet[Restriction]:
        found: QuerySet[Restriction] = rows.in_force(timezone.now())
        return found

    def filter_waiting(self, rows: Any, name: str, value: str) -> QuerySet[Restriction]:
        found: QuerySet[Restriction] = rows.waiting(timezone.now())
        return found


class RestrictionViewSet(
    SeeingView,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    viewsets.GenericViewSet[Restriction],
):
    """Restrictions, the newest first."""

    queryset = Restriction.objects.all()
    serializer_class = RestrictionSerializer
    permission_classes = (ViewsFleetOrEditsPolicies,)
    filterset_class = RestrictionFilter
    lookup_value_regex = "[0-9]{1,18}"
    # Many are issued at one instant, so time alone would not tell them apart.
    cursor_ordering = ("-issued_at", "-id")
    veiled_fields = visible.FIELDS

    def get_queryset(self) -> QuerySet[Restriction]:
        """The restrictions that the requesting user may see."""
        if getattr(self, "swagger_fake_view", False):  # nobody asks while the schema is made
            return Restriction.objects.none()
        return Restriction.objects.seen_by(self.visibility)

    def get_object(self) -> Restriction:
        """Return the object as the requesting user may see it."""
        return visible.rows([super().get_object()], self.visibility)[0]

    @extend_schema(request=RestrictionIssueSerializer, responses={201: RestrictionSerializer})
    def create(self, request: Request) -> Response:
        """Issue a restriction as a person: it is in force at once, and ends by itself."""
        body = _checked(RestrictionIssueSerializer, request)
        now = timezone.now()
        wanted = _wanted(body, actor_of(request), now)
        try:
            row = actions.issue(actor_of(request), wanted, now=now)
        except (BadRestriction, actions.Conflict) as exc:
            raise _api_error(exc) from exc
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=RestrictionExtendSerializer, responses=RestrictionSerializer)
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str) -> Response:
        """Draw out the lease."""
        expires_at = _checked(RestrictionExtendSerializer, request)["expires_at"]
        return self._done(actions.extend, request, pk, expires_at=expires_at)

    @extend_schema(request=RestrictionReasonSerializer, responses=RestrictionSerializer)
    @action(detail=True, methods=["post"], permission_classes=[ViewsFleetOrRunsPlaybooks])
    def lift(self, request: Request, pk: str) -> Response:
        """End it. That of a rule or a playbook stays lifted until its cause has ended."""
        body = _checked(RestrictionReasonSerializer, request)
        return self._done(actions.lift, request, pk, why=body["reason"], version=body["version"])

    @extend_schema(request=RestrictionApproveSerializer, responses=RestrictionSerializer)
    @action(detail=True, methods=["post"], permission_classes=[ViewsFleetOrRunsPlaybooks])
    def approve(self, request: Request, pk: str) -> Response:
        """Approve a restriction that a breaker holds, or that was lifted: it takes effect."""
        version = _checked(RestrictionApproveSerializer, request)["version"]
        return self._done(actions.approve, request, pk, version=version)

    @extend_schema(request=RestrictionReasonSerializer, responses=RestrictionSerializer)
    @action(detail=True, methods=["post"], permission_classes=[ViewsFleetOrRunsPlaybooks])
    def refuse(self, request: Request, pk: str) -> Response:
        """Refuse a restriction that a breaker holds, until its cause has ended."""
        body = _checked(RestrictionReasonSerializer, request)
        return self._done(actions.refuse, request, pk, why=body["reason"], version=body["version"])

    @extend_schema(responses=RestrictionLedgerSerializer)
    @action(detail=True)
    def ledger(self, request: Request, pk: str) -> Response:
        """Return the ledger of a restriction, step by step, and its outcome."""
        row = self.get_object()
        events = visible.events(row.events.order_by("id"), self.visibility)
        return Response(RestrictionLedgerSerializer(_ledger(row, events)).data)

    def _done(self, act: Any, request: Request, pk: str, **given: Any) -> Response:
        try:
            row = act(actor_of(request), int(pk), now=timezone.now(), **given)
        except Restriction.DoesNotExist as exc:
            raise Http404 from exc
        except (BadRestriction, actions.Conflict) as exc:
            raise _api_error(exc) from exc
        return Response(self.get_serializer(row).data)


def _ledger(row: Restriction, events: list[RestrictionEvent]) -> dict[str, Any]:
    told = [e for e in events if e.cycle == row.cycle and e.kind in RestrictionEvent.ONCE]
    last = told[-1] if told else None
    verdict = next((e for e in told if e.kind == RestrictionEvent.Kind.VERDICT), None)
    return {
        "summary": (verdict or last or events[-1]).text if events else "",
        "outcome": verdict.data["outcome"] if verdict else None,
        "events": events,
    }


class EffectiveView(APIView):
    """The restrictions in force on one scope now, also those of wider ones."""

    permission_classes = (ViewsFleetOrEditsPolicies,)

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "scope_kind", OpenApiTypes.STR, enum=[kind.value for kind in ScopeKind],
                required=True,
            ),
            OpenApiParameter("scope", OpenApiTypes.STR, required=True, description="Its name"),
        ],
        responses=EffectiveRestrictionSerializer(many=True),
        operation_id="restrictions_effective_list",
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """List the restrictions on a scope, by kind: the strictest counts, all are shown."""
        check_names(request.query_params, ("scope_kind", "scope", "format"))
        scope = _scope(request.query_params)
        visibility = Visibility(actor_of(request))
        in_force = visible.in_force(store.in_force(timezone.now()), visibility)
        try:
            found = in_force.covering(snapshot.current(), scope)
        except UnknownScope as exc:
            raise ValidationError({"scope": str(exc)}) from exc
        ids = [each.id for effective in found for each in effective.all]
        known = Restriction.objects.in_bulk(ids)
        rows = {row.pk: row for row in visible.rows(known.values(), visibility)}
        answer = [
            {
                "kind": effective.kind,
                "value": effective.value,
                "restrictions": [rows[each.id] for each in effective.all],
            }
            for effective in found
        ]
        return Response(EffectiveRestrictionSerializer(answer, many=True).data)


class FleetBreakerView(APIView):
    """The fleet breaker: while it is open no effect is added, and those in force run on."""

    permission_classes: tuple[type[BasePermission], ...] = (ViewsFleetOrRunsPlaybooks,)

    @extend_schema(responses=FleetBreakerSerializer, operation_id="fleet_breaker_retrieve")
    def get(self, request: Request) -> Response:
        """Return the state of the breaker, and who threw it."""
        return Response(FleetBreakerSerializer(FleetBreaker.current()).data)

    @extend_schema(
        request=FleetBreakerSerializer,
        responses=FleetBreakerSerializer,
        operation_id="fleet_breaker_throw",
    )
    def post(self, request: Request) -> Response:
        """Open or close it."""
        body = _checked(FleetBreakerSerializer, request)
        breaker = actions.throw_breaker(
            actor_of(request), is_open=body["is_open"], reason=body["reason"], now=timezone.now()
        )
        return Response(FleetBreakerSerializer(breaker).data)


# --- What is asked for ----------------------------------------------------------------------------


def _checked(kind: type[serializers.BaseSerializer[Any]], request: Request) -> dict[str, Any]:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    given: dict[str, Any] = body.validated_data
    return given


def _wanted(body: dict[str, Any], user: User, now: datetime) -> Wanted:
    for_s = body["for_s"]
    begins = body["starts_at"] or now
    expires_at = body["expires_at"] if for_s is None else begins + timedelta(seconds=for_s)
    return Wanted(
        kind=RestrictionKind(body["kind"]),
        scope=Scope(ScopeKind(body["scope"]["kind"]), body["scope"]["name"]),
        value=body["value"],
        reason=body["reason"],
        owner=actions.owner_of(user),
        # A person may want the same thing for two reasons, and each of them ends by itself.
        cause=body["reason"][:300],
        expires_at=expires_at,
        starts_at=body["starts_at"],
    )


def _scope(params: Any) -> Scope:
    try:
        kind = ScopeKind(params.get("scope_kind", ""))
    except ValueError:
        kinds = ", ".join(ScopeKind)
        raise ValidationError({"scope_kind": f"Give one of {kinds}."}) from None
    if not params.get("scope"):
        raise ValidationError({"scope": "Give the name of a scope."})
    return Scope(kind, params["scope"])


def _api_error(exc: BadRestriction | actions.Conflict) -> APIException:
    if isinstance(exc, actions.Conflict):
        conflict = APIException(str(exc), exc.code)
        conflict.status_code = status.HTTP_409_CONFLICT
        return conflict
    message = f"{exc}: {exc.hint}" if exc.hint else str(exc)
    return ValidationError({exc.field: [ErrorDetail(message, "invalid")]})
