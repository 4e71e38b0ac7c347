from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import ValidationError as ModelValidationError
from django.http import Http404
from rest_framework import exceptions, serializers

from config.api import exception_handler


def _answer(exc: Exception) -> tuple[int, dict[str, Any]]:
    response = exception_handler(exc, {})
    assert response is not None
    return response.status_code, response.data


def test_one_wrong_field_is_the_error() -> None:
    status, body = _answer(exceptions.ValidationError({"budget_w": ["Too low."]}, "min_value"))
    assert status == 400
    assert body == {
        "error": {"code": "min_value", "message": "Too low.", "field": "budget_w", "hint": ""}
    }


def test_several_wrong_fields_are_listed_with_their_places() -> None:
    detail: dict[str, Any] = {
        "name": ["Missing.", "Bad."],
        "gpus": [{}, {"model": ["Unknown."]}],
        "non_field_errors": ["Together wrong."],
    }
    _, body = _answer(exceptions.ValidationError(detail))
    assert [error["field"] for error in body["errors"]] == ["name", "name", "gpus[1].model", ""]
    assert body["error"] == body["errors"][0]


def test_a_real_serializer_keeps_its_codes() -> None:
    class Rack(serializers.Serializer[Any]):
        name = serializers.CharField()
        budget_w = serializers.FloatField(min_value=0)

    with pytest.raises(exceptions.ValidationError) as caught:
        Rack(data={"budget_w": -1}).is_valid(raise_exception=True)
    _, body = _answer(caught.value)
    assert [(error["field"], error["code"]) for error in body["errors"]] == [
        ("name", "required"),
        ("budget_w", "min_value"),
    ]


@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (Http404("No Rack matches."), 404, "not_found"),
        (DjangoPermissionDenied("no"), 403, "permission_denied"),
        (exceptions.NotAuthenticated(), 401, "not_authenticated"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (exceptions.ParseError(), 400, "parse_error"),
        (exceptions.UnsupportedMediaType("text/xml"), 415, "unsupported_media_type"),
    ],
)
def test_every_refusal_has_the_same_shape(exc: Exception, status: int, code: str) -> None:
    found, body = _answer(exc)
    assert found == status
    assert set(body["error"]) == {"code", "message", "field", "hint"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]


def test_a_throttled_client_hears_when_to_come_back() -> None:
    status, body = _answer(exceptions.Throttled(wait=12))
    assert status == 429
    assert body["error"]["hint"] == "Try again in 12 s."


def test_a_models_own_check_is_a_bad_request() -> None:
    status, body = _answer(ModelValidationError({"parent": "at another site"}))
    assert status == 400
    assert body["error"]["field"] == "parent"
    assert body["error"]["message"] == "at another site"


def test_a_fault_of_ours_is_not_hidden() -> None:
    assert exception_handler(RuntimeError("boom"), {}) is None
