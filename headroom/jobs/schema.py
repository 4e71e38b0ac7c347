"""The JSON schema of a job specification."""

from __future__ import annotations

from typing import Any

import msgspec

from headroom.jobs.spec import JobSpec

__all__ = ["job_spec_schema"]


def job_spec_schema() -> dict[str, Any]:
    """Return the schema, in JSON Schema 2020-12."""
    _, parts = msgspec.json.schema_components((JobSpec,), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job specification",
        "$ref": "#/$defs/JobSpec",
        "$defs": parts,
    }
