"""Errors as the API server says them: objects of kind Status.

Reasons, codes and sentences are those of apimachinery's ``pkg/api/errors`` and
``pkg/util/validation/field``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.kubernetes.server.schemas import Resource

Document = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong with one field."""

    reason: str
    field: str
    message: str

    def document(self) -> Document:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A request that the server answers with a Status instead of an object."""

    def __init__(
        self, code: int, reason: str, message: str, details: Document | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def document(self) -> Document:
        """Return the Status."""
        found: Document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            found["details"] = self.details
        return found


def _details(resource: Resource, name: str, **more: Any) -> Document:
    found: Document = {"name": name, "group": resource.group, "kind": resource.plural, **more}
    return {key: value for key, value in found.items() if value}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    of = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{of} is forbidden: {why}", _details(resource, name))


def no_such_page() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(resource, name))


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name))


def conflict(
    resource: Resource,
    name: str,
    why: str = "the object has been modified; please apply your changes to the latest version and"
    " try again",
) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def apply_conflict(conflicts: Sequence[tuple[str, str]]) -> ApiError:
    """Return the refusal of an apply that would change what others (manager, field) own."""
    by_manager: dict[str, list[str]] = {}
    for manager, field in conflicts:
        by_manager.setdefault(manager, []).append(field)
    parts = []
    for manager, fields in sorted(by_manager.items()):
        if len(fields) == 1:
            parts.append(f"conflict with {manager}: {fields[0]}")
        else:
            parts.append(f"conflicts with {manager}:\n" + "\n".join(f"- {f}" for f in fields))
    many = f"{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    causes = [
        Cause("FieldManagerConflict", field, f"conflict with {manager}").document()
        for manager, field in conflicts
    ]
    message = f"Apply failed with {many}: " + "\n".join(parts)
    return ApiError(409, "Conflict", message, {"causes": causes})


def expired(message: str) -> ApiError:
    """Return the answer to whoever resumes where nobody remembers: list everything again."""
    return ApiError(410, "Expired", message)


def unsupported_media_type(sent: str, taken: Sequence[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(taken)
    )
    return ApiError(415, "UnsupportedMediaType", message if sent else "no Content-Type was sent")


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    text = said[0] if len(said) == 1 else "[" + ", ".join(said) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {
        "name": name,
        "group": resource.group,
        "kind": resource.kind,
        "causes": [cause.document() for cause in causes],
    }
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {text}', details)


def too_many_requests(message: str, details: Document) -> ApiError:
    return ApiError(429, "TooManyRequests", message, details)


def too_large_resource_version(asked: int, current: int) -> ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, {"retryAfterSeconds": 1, "causes": [cause]})
