from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import NotAuthenticated
from rest_framework.generics import GenericAPIView

from accounts.models import User
from accounts.visibility import Visibility

if TYPE_CHECKING:
    from rest_framework.request import Request

    # Generic for the type checker alone.
    BaseView = GenericAPIView[Any]
else:
    BaseView = GenericAPIView


def actor_of(request: Request) -> User:
    """Return the user of the request; the permissions let only known users in."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


class SeeingView(BaseView):
    """A view of rows that may name jobs: its serializers find ``visibility`` in their context."""

    #: of the rows: texts and JSON that may name jobs
    veiled_fields: tuple[str, ...] = ()

    @cached_property
    def visibility(self) -> Visibility:
        """The visibility of jobs to the user of the request."""
        return Visibility(actor_of(self.request))

    def get_serializer_context(self) -> dict[str, Any]:
        """With ``visibility``."""
        return {**super().get_serializer_context(), "visibility": self.visibility}

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return the rows of a page, with the names of jobs that the reader may see."""
        page = super().paginate_queryset(queryset)
        return page and self.visibility.veiled(page, *self.veiled_fields)
