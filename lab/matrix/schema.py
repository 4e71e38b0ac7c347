"""The JSON schema of a scenario."""

from __future__ import annotations

from typing import Any

import msgspec

from lab.matrix.scenario import Scenario

__all__ = ["scenario_schema"]


def scenario_schema() -> dict[str, Any]:
    """Return the schema, in JSON Schema 2020-12."""
    _, parts = msgspec.json.schema_components((Scenario,), ref_template="#/$defs/{name}")
    # One expectation is one of its kinds: no type says so.
    parts["Expectation"] |= {"minProperties": 1, "maxProperties": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Scenario",
        "$ref": "#/$defs/Scenario",
        "$defs": parts,
    }
