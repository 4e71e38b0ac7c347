"""Numbers that may be unknown or without bound, in the REST API."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from headroom.numbers import ENDLESS, plain

__all__ = ["NumberField"]


@extend_schema_field({"oneOf": [{"type": "number"}, {"enum": list(ENDLESS)}, {"type": "null"}]})
class NumberField(serializers.FloatField):
    """A number that may be unknown or without bound."""

    def to_representation(self, value: Any) -> Any:
        return plain(float(value))
