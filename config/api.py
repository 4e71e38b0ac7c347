"""Common parts of the REST API: paging, and the shape of an error.

Every error reads ``{"error": {"code", "message", "field", "hint"}}``, as those of the telemetry
endpoints do; of a document it has ``line`` and ``column``, too. Where several fields are wrong,
``errors`` beside it lists them all.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from django.core.exceptions import ValidationError as ModelValidationError
from django.core.signing import BadSignature, Signer
from django.db.models import ProtectedError, RestrictedError
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import status
from rest_framework.exceptions import APIException, ErrorDetail, ValidationError
from rest_framework.pagination import Cursor
from rest_framework.pagination import CursorPagination as BaseCursorPagination
from rest_framework.response import Response
from rest_framework.serializers import as_serializer_error
from rest_framework.settings import api_settings
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import exception_handler as base_exception_handler
from rest_framework.views import set_rollback

from accounts.edge.errors import InUse, WrongState
from accounts.edge.parameters import check_names
from headroom.documents import DocumentError
from policies.documents.life import BadStep, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet
    from rest_framework.request import Request
    from rest_framework.views import APIView

Error = dict[str, str]

HINTS = {
    "not_authenticated": "Send `Authorization: Bearer hru_…`. Tokens are made at /account/.",
    "token_refused": "Make a new token at /account/.",
    "permission_denied": "Ask an admin for a role that may, see docs/reference/roles.md.",
    "unsupported_media_type": "Send `Content-Type: application/json`.",
    "in_use": "Remove or change first what uses it.",
}


class KnownFilters(DjangoFilterBackend):  # type: ignore[misc]
    """Filters of a list. A name that is none of them is refused: it would give the whole list.

    What else a view reads of the query string, it names in ``other_parameters``.
    """

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        # A view without actions is of a list: those of one thing do not filter.
        if getattr(view, "action", "list") == "list":
            check_names(request.query_params, self._known(request, queryset, view))
        return super().filter_queryset(request, queryset, view)

    def _known(self, request: Request, queryset: Any, view: Any) -> set[str]:
        filters = self.get_filterset(request, queryset, view)
        paging = ("cursor_query_param", "page_size_query_param")
        names = {getattr(view.paginator, each, None) for each in paging}
        names |= {api_settings.URL_FORMAT_OVERRIDE, *getattr(view, "other_parameters", ())}
        return {name for name in names if name} | set(filters.filters if filters else ())


_FOREIGN_CURSOR = "It is no cursor of this list: take `next` as an answer gives it."


class CursorPagination(BaseCursorPagination):
    """Pages by id: stable while rows come and go, and as fast at the end as at the start.

    A view with another order says so in ``cursor_ordering``, which has to tell all rows apart.
    """

    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Return the position that ``cursor`` names, if this server made it for this list.

        Anybody else's could hold a place that the database cannot compare with.
        """
        given = request.query_params.get(self.cursor_query_param)
        if given is None:
            return None
        try:
            offset, reverse, position = self._signer().unsign_object(given)
        except (BadSignature, ValueError) as error:
            detail = ErrorDetail(_FOREIGN_CURSOR, code="foreign_cursor")
            raise ValidationError({self.cursor_query_param: [detail]}) from error
        return Cursor(offset, reverse, position)

    def encode_cursor(self, cursor: Cursor) -> str:
        """Return the link to a place of this list."""
        token = self._signer().sign_object([*cursor])
        link: str = replace_query_param(str(self.base_url), self.cursor_query_param, token)
        return link

    def _signer(self) -> Signer:
        path = urlsplit(str(self.base_url)).path
        return Signer(salt=f"cursor:{path}:{','.join(self.ordering)}")

    def get_ordering(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> tuple[str, ...]:
        """Return the fields by which the view's rows are in order."""
        ordering: tuple[str, ...] = getattr(view, "cursor_ordering", ("id",))
        return ordering


def error_body(code: str, message: str, field: str = "") -> dict[str, Error]:
    """Return the body of an error, with the way out where there is a known one."""
    return {
        "error": {"code": code, "message": message, "field": field, "hint": HINTS.get(code, "")}
    }


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Turn an exception of a view into an answer. None: it is a fault of ours."""
    if isinstance(exc, DocumentError):
        return _refused_document(exc)
    exc = _as_api_exception(exc)
    response = base_exception_handler(exc, context)
    if response is None:
        return None
    if isinstance(exc, APIException):
        errors = list(_flatten(exc.detail))
    else:  # Django's Http404 and PermissionDenied
        detail = response.data["detail"]
        errors = [_error("", detail)]
    body: dict[str, Any] = {"error": errors[0]}
    if len(errors) > 1:
        body["errors"] = errors
    if "Retry-After" in response:
        body["error"]["hint"] = f"Try again in {response['Retry-After']} s."
    response.data = body
    return response


def _refused_document(exc: DocumentError) -> Response:
    """Answer with all faults of a document, each with its place."""
    set_rollback()
    errors = [{**msgspec.structs.asdict(each)} for each in exc.problems]
    body: dict[str, Any] = {"error": errors[0]}
    if len(errors) > 1:
        body["errors"] = errors
    return Response(body, status=status.HTTP_400_BAD_REQUEST)


def _as_api_exception(exc: Exception) -> Exception:
    if isinstance(exc, BadStep):
        detail = ErrorDetail(_sentence(exc), "invalid_step")
        return ValidationError({exc.field: [detail]})
    if isinstance(exc, Refused):
        return WrongState(_sentence(exc))
    if isinstance(exc, ModelValidationError):
        return ValidationError(as_serializer_error(exc))
    if isinstance(exc, ProtectedError | RestrictedError):
        users = exc.protected_objects if isinstance(exc, ProtectedError) else exc.restricted_objects
        # Of a hundred thousand not each is asked for its name.
        named = sorted(map(str, islice(users, 3)))
        more = f" and {len(users) - 3} more" if len(users) > 3 else ""
        return InUse(f"It is in use by {', '.join(named)}{more}.")
    return exc


def _sentence(exc: Refused) -> str:
    return f"{exc.message}: {exc.hint}" if exc.hint else exc.message


def _flatten(detail: Any, path: str = "") -> Iterator[Error]:
    """Yield one error for each message in a detail, with its place such as ``gpus[0].model``."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            yield from _flatten(inner, _join(path, str(key)))
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            # Messages of one place stand in a plain list; rows of a list of objects are counted.
            plain = isinstance(inner, str)
            yield from _flatten(inner, path if plain else f"{path}[{index}]")
    else:
        yield _error(path, detail)


def _join(path: str, key: str) -> str:
    if key == api_settings.NON_FIELD_ERRORS_KEY:
        return path
    return f"{path}.{key}" if path else key


def _error(field: str, detail: Any) -> Error:
    code = (detail.code if isinstance(detail, ErrorDetail) else None) or "error"
    return error_body(code, str(detail), field)["error"]
