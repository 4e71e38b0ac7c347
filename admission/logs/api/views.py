"""``/api/v1/jobs/NAME/logs``: what a job says, for its project and for operators."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import BIGGEST_ID, check_names, whole_number
from accounts.permissions import ViewsFleet
from accounts.visibility import Visibility
from admission.jobs.models import Job
from admission.logs import reading
from admission.logs.api.serializers import JobLogsSerializer
from admission.logs.reading import END, NotThere, Said, Selection, Source
from fleet.api.actors import actor_of

#: Less might not hold one character.
_FEWEST_BYTES = 16


class JobLogsView(APIView):
    """The output of a job, by phase, attempt and node."""

    permission_classes = (ViewsFleet,)

    @extend_schema(
        parameters=[
            OpenApiParameter("phase", OpenApiTypes.STR, description="Else the one that failed, or "
                             "was dispatched last"),
            OpenApiParameter("attempt", OpenApiTypes.INT, description="Else the last"),
            OpenApiParameter("rank", OpenApiTypes.INT, description="Else the node that failed "
                             "first, or the first"),
            OpenApiParameter("node", OpenApiTypes.STR, description="In place of rank"),
            OpenApiParameter("offset", OpenApiTypes.INT, description="From this byte on; else the "
                             "end"),
            OpenApiParameter("most", OpenApiTypes.INT, description="Bytes, at most 262144; 65536 "
                             "by default"),
        ],
        responses=JobLogsSerializer,
        operation_id="job_logs_retrieve",
    )  # fmt: skip
    def get(self, request: Request, name: str) -> Response:
        """Show output. Where it is ``pending``, its machine is asked for it: ask again."""
        check_names(
            request.query_params, ("phase", "attempt", "rank", "node", "offset", "most", "format")
        )
        user = actor_of(request)
        job = get_object_or_404(Job.objects.readable_by(user), name=name)
        start = _number(request, "offset", most=BIGGEST_ID // 2)
        most = _number(request, "most", least=_FEWEST_BYTES, most=reading.MOST_BYTES)
        try:
            source = reading.find(job, _selection(request))
        except NotThere as error:
            raise serializers.ValidationError({error.field: str(error)}) from error
        said = reading.read(
            source,
            END if start is None else start,
            reading.USUAL_BYTES if most is None else most,
            timezone.now(),
        )
        answer = _answer(job, source, said, Visibility(user))
        return Response(JobLogsSerializer(answer).data, headers={"Cache-Control": "no-store"})


def _selection(request: Request) -> Selection:
    return Selection(
        phase=request.query_params.get("phase", "").replace("\0", ""),
        attempt=_number(request, "attempt", least=1, most=2**31 - 1),
        rank=_number(request, "rank", most=2**31 - 1),
        node=request.query_params.get("node", "").replace("\0", ""),
    )


def _number(request: Request, name: str, *, least: int = 0, most: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    found = whole_number(text, least=least, most=most)
    if found is None:
        raise serializers.ValidationError({name: f"Give a whole number from {least} to {most}."})
    return found


def _answer(job: Job, source: Source, said: Said, visibility: Visibility) -> dict[str, Any]:
    attempt, part = source.attempt, source.part
    why = "Output is kept for 7 days after the end." if source.is_gone else ""
    return {
        "job": job.name,
        "phase": attempt.phase.name if attempt else "",
        "attempt": attempt.number if attempt else None,
        "node": part.node if part else "",
        "rank": part.rank if part else None,
        "ranks": len(source.parts),
        "failed_ranks": [each.rank for each in source.failed],
        "state": part.state if part else "",
        "exit_code": part.exit_code if part else None,
        "why": visibility.text(part.text) if part else why,
        "size": part.log_size if part else None,
        "offset": said.start,
        "next_offset": said.next,
        "text": said.text,
        "tail": said.tail,
        "pending": said.pending,
        "over": said.over,
    }
