"""``/api/v1/admission-policies``: versions, the one in force, and the decisions of shadows."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.edge.parameters import check_names
from accounts.edge.parsers import JSONParser
from accounts.permissions import ViewsFleet, ViewsFleetOrEditsPolicies
from admission.core import policy
from admission.policy import comparing
from admission.policy.api.serializers import (
    AdmissionPolicySerializer,
    AdmissionPolicyVersionSerializer,
    ShadowSerializer,
)
from admission.policy.catalog import POLICIES
from admission.policy.models import AdmissionPolicyVersion
from fleet.api.actors import actor_of
from policies.documents.api import (
    DraftSerializer,
    VersionSummarySerializer,
    YamlParser,
    drafted,
    summary_of,
)
from policies.documents.models import States

#: Decisions of a shadow in one answer, the newest first.
_MOST = 2_000

__all__ = ["AdmissionPoliciesView", "AdmissionPolicyInForceView", "ShadowView", "says"]


def says(text: str) -> dict[str, Any]:
    """Return the name in a policy's text, for its check."""
    return {"name": policy.for_server(text).name}


class AdmissionPoliciesView(APIView):
    permission_classes = (ViewsFleetOrEditsPolicies,)
    parser_classes = (JSONParser, YamlParser)

    @extend_schema(
        operation_id="admission_policies_list", responses=VersionSummarySerializer(many=True)
    )
    def get(self, request: Request) -> Response:
        """List the versions that are not retired, by name, the newest first."""
        check_names(request.query_params, ("format",))
        rows = AdmissionPolicyVersion.objects.exclude(state=States.RETIRED).defer("text")
        return Response([summary_of(row) for row in rows])

    @extend_schema(request=DraftSerializer, responses={201: AdmissionPolicyVersionSerializer})
    def post(self, request: Request) -> Response:
        """Add a version, as a draft, of the policy that the text names.

        The body is ``{"text": …, "note": …}`` or, as ``application/yaml``, the text itself.
        """
        return drafted(POLICIES, AdmissionPolicyVersionSerializer, request)


class AdmissionPolicyInForceView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(operation_id="admission_policy_in_force", responses=AdmissionPolicySerializer)
    def get(self, request: Request) -> Response:
        """Show the policy in force, with every number written out where it is the built-in one."""
        row = AdmissionPolicyVersion.objects.active().first()
        if row is None:
            return Response({"name": policy.NAME, "number": 0, "text": policy.built_in_text()})
        return Response({"name": row.name, "number": row.number, "text": row.text})


class ShadowView(APIView):
    permission_classes = (ViewsFleet,)

    @extend_schema(operation_id="admission_policies_shadow", responses=ShadowSerializer)
    def get(self, request: Request, name: str, number: int) -> Response:
        """Say of each job of the last day where a shadow would have decided otherwise."""
        version = get_object_or_404(AdmissionPolicyVersion, name=name, number=number)
        found = comparing.compared(version, actor_of(request), timezone.now(), most=_MOST)
        return Response(ShadowSerializer(found).data)
