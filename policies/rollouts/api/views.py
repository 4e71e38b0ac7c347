"""``/api/v1/rollouts``: rollouts under way and over, and the actions of people on them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.errors import WrongState
from accounts.edge.parameters import check_names
from accounts.edge.parsers import JSONParser
from accounts.permissions import (
    ViewsFleet,
    ViewsFleetOrEditsPolicies,
    ViewsFleetOrRunsPlaybooks,
)
from fleet import snapshot
from fleet.api.actors import actor_of
from policies.documents.api import DraftSerializer, YamlParser, checked, drafted
from policies.rollouts import document, following
from policies.rollouts.api.serializers import (
    JudgementSerializer,
    RolloutEventSerializer,
    RolloutReasonSerializer,
    RolloutRunSerializer,
    RolloutSerializer,
    RolloutVersionSerializer,
)
from policies.rollouts.following import ROLLOUTS, NotPossible, Verb
from policies.rollouts.models import RolloutRun
from policies.rollouts.showing import shown

#: That a list has, the newest.
_MOST = 200


def says(text: str) -> dict[str, Any]:
    """Return what a rollout's text changes, for its check."""
    return {"sentence": document.read(text).sentence}


class RolloutsView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)

    @extend_schema(operation_id="rollouts_list", responses=RolloutRunSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List rollouts that were started, the newest first."""
        check_names(request.query_params, ("format",))
        rows = RolloutRun.objects.select_related("version")[:_MOST]
        return Response(RolloutRunSerializer(rows, many=True).data)

    @extend_schema(request=DraftSerializer, responses={201: RolloutVersionSerializer})
    def post(self, request: Request) -> Response:
        """Add a version, as a draft, of the rollout that the text names.

        The body is ``{"text": …, "note": …}`` or, as ``application/yaml``, the text itself.
        """
        return drafted(ROLLOUTS, RolloutVersionSerializer, request)


class RolloutView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(responses=RolloutSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Show the last rollout of a name, with its arms, its evidence, and what comes next."""
        return Response(_shown(_newest(name)))


class RolloutStartView(APIView):
    permission_classes = (ViewsFleetOrRunsPlaybooks,)

    @extend_schema(request=None, responses={201: RolloutSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Start the version that is in force."""
        try:
            run = following.start(actor_of(request), name, now=timezone.now())
        except NotPossible as error:
            raise WrongState(str(error)) from error
        return Response(_shown(run), status=status.HTTP_201_CREATED)


class _ActView(APIView):
    """Each verb has a view of its own, so that the schema tells them apart."""

    verb: ClassVar[Verb]
    permission_classes = (ViewsFleetOrRunsPlaybooks,)

    def post(self, request: Request, name: str) -> Response:
        """Promote, hold, resume or roll back. To go on takes more than to stop."""
        user, verb = actor_of(request), type(self).verb
        if not user.can(verb.capability):
            raise PermissionDenied(user.why_not(verb.capability))
        why = checked(RolloutReasonSerializer, request)["why"]
        try:
            run = following.act(user, _newest(name).pk, verb, why=why, now=timezone.now())
        except NotPossible as error:
            raise WrongState(str(error)) from error
        return Response(_shown(run))


def act_view(verb: Verb) -> type[APIView]:
    """Return the view of what a person does."""
    made = type(f"Rollout{verb.title().replace('_', '')}View", (_ActView,), {"verb": verb})
    described = extend_schema(
        operation_id=f"rollouts_run_{verb}",
        request=RolloutReasonSerializer,
        responses=RolloutSerializer,
    )
    return extend_schema_view(post=described)(made)


def _newest(name: str) -> RolloutRun:
    run = RolloutRun.objects.select_related("version").filter(name=name).first()
    if run is None:
        raise Http404(f"no rollout {name} was started")
    return run


def _shown(run: RolloutRun) -> dict[str, Any]:
    found = shown(run, snapshot.current())
    body = {
        "run": RolloutRunSerializer(run).data,
        "sentence": found.plan.sentence,
        "next": found.next,
        "racks": run.racks,
        "control": run.control,
        "imbalance": run.imbalance,
        "judged": found.judged,
        "drift": found.drift,
        "may": [verb.value for verb in found.may],
        "events": RolloutEventSerializer(run.events.all(), many=True).data,
    }
    if found.judged is not None:
        body["judged"] = JudgementSerializer(found.judged).data
    return body
