"""Refusals of requests about jobs, as answers in the shape of all errors."""

from __future__ import annotations

import math

from rest_framework import status
from rest_framework.response import Response

from admission.jobs.submission import Conflict, OverLimit

__all__ = ["refusal"]


def refusal(error: Conflict | OverLimit) -> Response:
    """Return the answer: 409 for a job that is not so.

    429 for what is too much now, 403 for what always is.
    """
    if isinstance(error, OverLimit):
        return _over_limit(error)
    found = {"code": error.code, "message": str(error), "field": "", "hint": error.hint}
    return Response({"error": found}, status=status.HTTP_409_CONFLICT)


def _over_limit(error: OverLimit) -> Response:
    told = {"code": error.code, "message": str(error), "field": "", "hint": error.hint}
    body = {"error": told, "limit": error.numbers}
    if error.retry_after_s is None:
        return Response(body, status=status.HTTP_403_FORBIDDEN)
    headers = {"Retry-After": str(math.ceil(error.retry_after_s))}
    return Response(body, status=status.HTTP_429_TOO_MANY_REQUESTS, headers=headers)
