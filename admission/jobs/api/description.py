"""The contract of jobs in the description of the REST API."""

from __future__ import annotations

from typing import Any

import msgspec

from headroom.jobs.spec import JobSpec

__all__ = ["describe"]

_PREFIX = "JobSpec"


def describe(result: dict[str, Any], **_context: Any) -> dict[str, Any]:
    """Add the parts of a specification to the schema of drf-spectacular: a hook of it."""
    _, parts = msgspec.json.schema_components(
        (JobSpec,), ref_template=f"#/components/schemas/{_PREFIX}{{name}}"
    )
    named = {f"{_PREFIX}{name}": part for name, part in parts.items()}
    schemas = result["components"]["schemas"]
    result["components"]["schemas"] = dict(sorted((schemas | named).items()))
    return result
