"""Values that an OpenAPI schema describes, nearly: some of them are wrong on purpose."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz import values

_MOST_DEPTH = 6


class Described:
    """What the REST API's description says, by operation.

    ``words`` are names that exist on the server: without them nearly all ends at the first look-up.
    """

    def __init__(self, document: dict[str, Any], words: list[str]) -> None:
        self._schemas: dict[str, Any] = document["components"]["schemas"]
        self._words = words
        self.operations = [
            (method, path, operation)
            for path, by_method in sorted(document["paths"].items())
            for method, operation in sorted(by_method.items())
        ]

    def parameter(self, described: dict[str, Any], rng: Random) -> str:
        """Return a value of a parameter of a path or a query, as a text."""
        if rng.random() < 0.3:
            return values.text(rng)
        name, schema = described["name"], described.get("schema", {})
        if name in ("since", "until", "from", "to"):
            return rng.choice(values.MOMENTS)
        if name == "range":
            return rng.choice(values.SPANS)
        if name == "cursor":
            return rng.choice(
                ("cD0x", "cj0xJnA9OTk=", "bz05OTk5OTk5OTk5", "cD0wMDAxLTAxLTAx", "!", "cD0")
            )
        if schema.get("type") == "integer":
            return rng.choice((str(rng.randrange(1, 30)), rng.choice(values.DIGITS)))
        found = self.value(schema, rng, wrong=0.1)
        return found if isinstance(found, str) else str(found).lower()

    def value(self, schema: Any, rng: Random, wrong: float = 0.07, depth: int = 0) -> Any:
        """Return a value of ``schema``; each of its parts is something else now and then."""
        if not isinstance(schema, dict) or depth > _MOST_DEPTH or rng.random() < wrong:
            return values.anything(rng)
        if "$ref" in schema:
            return self.value(
                self._schemas[schema["$ref"].rpartition("/")[2]], rng, wrong, depth + 1
            )
        for name in ("oneOf", "anyOf"):
            if schema.get(name):
                return self.value(rng.choice(schema[name]), rng, wrong, depth + 1)
        if schema.get("allOf"):
            return self.value(schema["allOf"][0], rng, wrong, depth + 1)
        if schema.get("enum"):
            return rng.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        return self._of_type(schema, rng, wrong, depth)

    def _of_type(self, schema: dict[str, Any], rng: Random, wrong: float, depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else None)
        kind = rng.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self._object(schema, rng, wrong, depth)
        if kind == "array":
            count = rng.choice((0, 1, 1, 2, 3))
            return [self.value(schema.get("items"), rng, wrong, depth + 1) for _ in range(count)]
        if kind == "integer":
            return rng.choice((rng.randrange(1, 20), rng.choice(values.WHOLE_NUMBERS)))
        if kind == "number":
            return rng.choice((rng.uniform(0, 1000), rng.choice(values.NUMBERS)))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "string":
            return self._text(schema, rng)
        return None if kind == "null" else values.anything(rng)

    def _text(self, schema: dict[str, Any], rng: Random) -> str:
        if schema.get("format") == "date-time":
            return rng.choice(values.MOMENTS)
        return rng.choice(self._words) if rng.random() < 0.8 else values.text(rng)

    def _object(self, schema: dict[str, Any], rng: Random, wrong: float, depth: int) -> Any:
        needed = set(schema.get("required", ()))
        made = {
            name: self.value(inner, rng, wrong, depth + 1)
            for name, inner in sorted(schema.get("properties", {}).items())
            if rng.random() < (0.95 if name in needed else 0.5)
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            made[rng.choice(self._words)] = self.value(more, rng, wrong, depth + 1)
        return made
