"""Relations by natural key: ``oslo``, ``oslo/A01``, the name of a node, link or model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

if TYPE_CHECKING:
    from rest_framework.relations import PKOnlyObject

    # Generic for the type checker alone.
    BaseField = serializers.RelatedField[Model, str, str]
else:
    BaseField = serializers.RelatedField


def by_key(rows: QuerySet[Any], key: str) -> QuerySet[Any]:
    """Return the row with this key, or none. For kinds that others refer to."""
    if not hasattr(rows.model, "site"):
        return rows.filter(name=key)
    site, _, name = key.partition("/")
    return rows.filter(site__name=site, name=name)


@extend_schema_field({"type": "string"})
class KeyField(BaseField):
    """A relation by the natural key of the related row, which is its ``str()``."""

    default_error_messages = {
        "does_not_exist": "There is no {what} {given!r}.",
        "invalid": "A {what} is given by its key, a text.",
    }

    def to_internal_value(self, data: Any) -> Model:
        rows = cast("QuerySet[Model]", self.get_queryset())
        what = str(rows.model._meta.verbose_name)
        if not isinstance(data, str):
            self.fail("invalid", what=what)
        if hasattr(rows.model, "site"):
            rows = rows.select_related("site")
        # Postgres takes no text with a null character.
        found = None if "\0" in data else by_key(rows, data).first()
        if found is None:
            self.fail("does_not_exist", what=what, given=data)
        return cast("Model", found)

    def to_representation(self, value: Model | PKOnlyObject) -> str:
        return str(value)
