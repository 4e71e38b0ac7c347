"""What may be wrong with a request about jobs, as answers in the shape of all errors."""

from __future__ import annotations

from typing import Any

import msgspec
from rest_framework import status
from rest_framework.response import Response

from admission.jobs.actions import Conflict
from headroom.jobs.reading import SpecError

__all__ = ["refusal"]


def refusal(error: SpecError | Conflict) -> Response:
    """Return the answer: 400 for a specification that is refused, 409 for a job that is not so."""
    if isinstance(error, Conflict):
        found = {"code": error.code, "message": str(error), "field": "", "hint": error.hint}
        return Response({"error": found}, status=status.HTTP_409_CONFLICT)
    errors = [
        {"field": "", "hint": "", **msgspec.to_builtins(problem)} for problem in error.problems
    ]
    body: dict[str, Any] = {"error": errors[0]}
    if len(errors) > 1:
        body["errors"] = errors
    return Response(body, status=status.HTTP_400_BAD_REQUEST)
