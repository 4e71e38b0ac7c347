"""Answers to texts that are wrong: every fault, with line and column."""

from __future__ import annotations

from typing import Any

from rest_framework import status
from rest_framework.response import Response

from policies.rules.errors import Problem, RuleError


def refused(error: RuleError, code: str) -> Response:
    """Answer with every fault of a text, under the stable ``code``."""
    errors = [_error(problem, code) for problem in error.problems]
    body: dict[str, Any] = {"error": errors[0]}
    if len(errors) > 1:
        body["errors"] = errors
    return Response(body, status=status.HTTP_400_BAD_REQUEST)


def _error(problem: Problem, code: str) -> dict[str, Any]:
    return {
        "code": code,
        "message": str(problem),
        "field": problem.field or "text",
        "hint": problem.hint,
        "line": problem.line,
        "column": problem.column,
    }
