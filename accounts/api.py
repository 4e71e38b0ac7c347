"""The user of a token: for clients that want to check it before they use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import schema  # noqa: F401 - tells the OpenAPI generator of our tokens
from accounts.models import User
from accounts.permissions import ViewsFleet
from accounts.roles import Capability, Role

if TYPE_CHECKING:
    from rest_framework.request import Request


class MeSerializer(serializers.Serializer[dict[str, object]]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices)
    capabilities = serializers.ListField(
        child=serializers.ChoiceField(choices=[(item.value, item.phrase) for item in Capability])
    )


class Me(APIView):
    """The user of the request's token or session."""

    permission_classes = [ViewsFleet]

    @extend_schema(responses=MeSerializer)
    def get(self, request: Request) -> Response:
        user = request.user
        if not isinstance(user, User):
            raise NotAuthenticated
        capabilities = sorted(capability.value for capability in user.capabilities)
        body: dict[str, object] = {
            "username": user.username,
            "role": user.role,
            "capabilities": capabilities,
        }
        return Response(MeSerializer(body).data)
