"""``field__among=values``: as ``__in``, for thousands of values.

They are one array in the statement. With a place for each, Django and psycopg take longer to put
ten thousand together than Postgres to answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Field, ForeignObject, Lookup

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    # Generic for the type checker alone.
    BaseLookup = Lookup[Any]
else:
    BaseLookup = Lookup

__all__ = ["Among"]


# Keys of other rows have lookups of their own.
@ForeignObject.register_lookup
@Field.register_lookup
class Among(BaseLookup):
    """A field has one of many plain values."""

    lookup_name = "among"
    prepare_rhs = False

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        """Return the condition, and what goes into it."""
        column, given = self.process_lhs(compiler, connection)
        kind = self.lhs.output_field.rel_db_type(connection)
        # A cast to a length would cut off what is longer, which then is another value.
        kind = "text" if "char" in kind else kind
        return f"{column} = ANY(%s::{kind}[])", (*given, list(self.rhs))
