"""Holds values to JSON schemas.

``jsonschema`` compiles a grammar of IRIs when it is imported, which takes seconds: it is imported
when the first value is held to a schema, and not by each process that collects the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


def validator(schema: dict[str, Any]) -> Validator:
    """Return what holds values to a schema, of the draft that it names or else the latest.

    Raises jsonschema.SchemaError for what is no schema.
    """
    from jsonschema.validators import validator_for

    kind = validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)
