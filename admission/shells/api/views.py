"""``/api/v1/jobs/NAME/shells``: terminals in what a job holds, for its owner.

What is said there goes past Django: see ``config.door.shells``.
"""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, ErrorDetail, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.permissions import ViewsFleetOrSubmitsJobs
from admission.jobs.models import Job
from admission.logs import reading
from admission.logs.reading import NotThere, Selection
from admission.shells import opening
from admission.shells.api.serializers import ShellAskSerializer, ShellSerializer
from fleet.api.actors import actor_of

_OF_SELECTION = ("phase", "attempt", "rank", "node")


class _Conflict(APIException):
    status_code = status.HTTP_409_CONFLICT

    def __init__(self, error: opening.NotNow) -> None:
        super().__init__(ErrorDetail(f"{error}; {error.hint}", error.code))


class JobShellsView(APIView):
    """Terminals in a running job."""

    permission_classes = (ViewsFleetOrSubmitsJobs,)

    @extend_schema(
        request=ShellAskSerializer,
        responses={201: ShellSerializer},
        operation_id="job_shells_create",
    )
    def post(self, request: Request, name: str) -> Response:
        """Open a terminal where the job runs. For whoever has submitted it.

        Its machine opens it where its agent allows that (``allow_shell``), within half a minute.
        """
        user = actor_of(request)
        job = get_object_or_404(Job.objects.readable_by(user), name=name)
        if not opening.may_open(user, job):
            raise PermissionDenied("Only whoever has submitted a job may open a terminal in it.")
        body = ShellAskSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given: dict[str, Any] = dict(body.validated_data)
        chosen = {field: given.pop(field) for field in _OF_SELECTION if field in given}
        try:
            source = reading.find(job, Selection(**chosen))
            found = opening.open_shell(user, job, source.part, given, timezone.now())
        except NotThere as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        except opening.NotNow as error:
            raise _Conflict(error) from error
        answer = {"session": found.shell.pk, "node": found.node, "secret": found.secret}
        return Response(
            ShellSerializer(answer).data,
            status=status.HTTP_201_CREATED,
            headers={"Cache-Control": "no-store"},
        )
