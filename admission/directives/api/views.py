"""``/api/v1/jobs/NAME/directives``, ``…/fallback`` and ``…/advice``; ``/api/v1/directives/ID``."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import ViewsFleet, ViewsFleetOrSubmitsJobs
from accounts.visibility import Visibility
from admission.core.response.fallback import Fallback
from admission.directives import actions, advising, fallback, visible
from admission.directives.actions import BadDirective
from admission.directives.api.serializers import (
    AdviceSerializer,
    ClassAdviceSerializer,
    JobDirectiveGiveSerializer,
    JobDirectiveSerializer,
    JobDirectiveWithdrawSerializer,
    JobFallbackSerializer,
    RemainingSerializer,
)
from admission.directives.models import Directive
from admission.directives.remaining import remaining_in
from admission.jobs import catalog
from admission.jobs.models import Job
from fleet.api.actors import actor_of
from policies import current
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import UnknownScope

if TYPE_CHECKING:
    pass

#: The newest of a job.
_MOST = 200


class JobDirectivesView(APIView):
    """The directives of a job: list them, or give one."""

    permission_classes = (ViewsFleetOrSubmitsJobs,)

    @extend_schema(responses=JobDirectiveSerializer(many=True), operation_id="job_directives_list")
    def get(self, request: Request, name: str) -> Response:
        """List the directives of a job, the newest first, each with its ledger. At most 200."""
        job = get_object_or_404(Job.objects.visible_to(actor_of(request)), name=name)
        return _told(_of(job)[:_MOST], request)

    @extend_schema(
        request=JobDirectiveGiveSerializer,
        responses={201: JobDirectiveSerializer(many=True)},
        operation_id="job_directives_give",
    )
    def post(self, request: Request, name: str) -> Response:
        """Tell a running job to save, pause, go on, work on less, or end and wait again."""
        job = _changeable(request, name)
        body, now = _checked(JobDirectiveGiveSerializer, request), timezone.now()
        until = now + timedelta(seconds=body.pop("for_s"))
        try:
            given = actions.give(job, actor_of(request), until=until, now=now, **body)
        except BadDirective as error:
            raise _refusal(error) from error
        rows = _of(job).filter(pk__in=[row.pk for row in given])
        return _told(rows, request, status.HTTP_201_CREATED)


def _told(rows: QuerySet[Directive], request: Request, code: int = status.HTTP_200_OK) -> Response:
    seen = visible.directives(rows, Visibility(actor_of(request)))
    return Response(JobDirectiveSerializer(seen, many=True).data, status=code)


def _of(job: Job) -> QuerySet[Directive]:
    rows = Directive.objects.filter(attempt__phase__job=job)
    return rows.select_related("attempt__phase__job").prefetch_related("events")


class DirectiveWithdrawView(APIView):
    """The withdrawal of a directive that a person gave."""

    permission_classes = (ViewsFleetOrSubmitsJobs,)

    @extend_schema(
        request=JobDirectiveWithdrawSerializer,
        responses=JobDirectiveSerializer,
        operation_id="job_directive_withdraw",
    )
    def post(self, request: Request, pk: int) -> Response:
        """End a directive that a person gave: the job is as before within seconds."""
        # In one: whether it is there is not told to who may not change it.
        job = get_object_or_404(
            Job.objects.changeable_by(actor_of(request)), phases__attempts__directives=pk
        )
        body = _checked(JobDirectiveWithdrawSerializer, request)
        try:
            actions.withdraw(pk, actor_of(request), why=body["reason"], now=timezone.now())
        except BadDirective as error:
            raise _refusal(error) from error
        (given,) = visible.directives(_of(job).filter(pk=pk), Visibility(actor_of(request)))
        return Response(JobDirectiveSerializer(given).data)


class JobFallbackView(APIView):
    """The fallback state of a job."""

    permission_classes = (ViewsFleetOrSubmitsJobs,)

    @extend_schema(
        request=JobFallbackSerializer,
        responses=JobFallbackSerializer,
        operation_id="job_fallback_set",
    )
    def post(self, request: Request, name: str) -> Response:
        """Bring a job to a fallback state, also back; the policy goes on from there."""
        job = _changeable(request, name)
        body = _checked(JobFallbackSerializer, request)
        if job.state not in Job.OPEN:
            raise ValidationError({"state": [ErrorDetail("The job is over.", "over")]})
        fallback.set_state(
            job, Fallback(body["state"]), actor_of(request), why=body["reason"], now=timezone.now()
        )
        return Response({"state": job.fallback_state, "reason": body["reason"]})


class RestrictionRemainingView(APIView):
    """What still runs where a restriction drains a place."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=RemainingSerializer, operation_id="restriction_remaining_retrieve")
    def get(self, request: Request, pk: int) -> Response:
        """Say what still runs where this ``drain`` is: whose it is, and why. 404 of other kinds."""
        visibility = Visibility(actor_of(request))
        drains = Restriction.objects.seen_by(visibility).filter(kind=RestrictionKind.DRAIN)
        row = get_object_or_404(drains, pk=pk)
        headroom = current.headroom(timezone.now().timestamp())
        try:
            found = remaining_in(row.scope, headroom, visibility)
        except UnknownScope as gone:
            raise Http404 from gone
        return Response(RemainingSerializer(found).data)


class JobAdviceView(APIView):
    """Scaling advice for a job."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=AdviceSerializer(many=True), operation_id="job_advice_list")
    def get(self, request: Request, name: str) -> Response:
        """Say of each running phase which way to scale, with the effect of each way, and why."""
        job = get_object_or_404(Job.objects.visible_to(actor_of(request)), name=name)
        return Response(AdviceSerializer(advising.advice_for_job(job), many=True).data)


class ClassAdviceView(APIView):
    """The advice for a scheduling class."""

    permission_classes = (ViewsFleet,)

    @extend_schema(responses=ClassAdviceSerializer, operation_id="class_advice_retrieve")
    def get(self, request: Request, name: str) -> Response:
        """Count the running phases of a class by their advice. Of those that the user may see."""
        if name not in catalog.current():
            raise Http404
        visible = set(
            Job.objects.visible_to(actor_of(request)).open().filter(job_class=name)
            .values_list("name", flat=True)
        )  # fmt: skip
        found = advising.advice_for_class(name)
        mine = [each for each in found if each.key.rpartition("/")[0] in visible]
        counts = Counter(each.best.value for each in found)
        return Response(ClassAdviceSerializer({"counts": counts, "advice": mine}).data)


def _changeable(request: Request, name: str) -> Job:
    """Return a job that the user may change. 404 where it is not even seen, as elsewhere."""
    return get_object_or_404(Job.objects.changeable_by(actor_of(request)), name=name)


def _checked(kind: type[serializers.BaseSerializer[Any]], request: Request) -> dict[str, Any]:
    body = kind(data=request.data)
    body.is_valid(raise_exception=True)
    given: dict[str, Any] = body.validated_data
    return given


def _refusal(error: BadDirective) -> ValidationError:
    message = f"{error}: {error.hint}" if error.hint else str(error)
    return ValidationError({error.field: [ErrorDetail(message, "invalid")]})
