"""Connections of which each is used only while its server takes writes.

When another server takes the place of the one that we are connected to, ours may live on as a
standby, or behind a proxy: then it answers, and refuses each write. Django's own check, ``SELECT
1``, would keep such a connection for good.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base

__all__ = ["DatabaseWrapper"]


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's connection, closed when its server has become a standby."""

    def is_usable(self) -> bool:
        """Say whether the server answers and takes writes."""
        connection: Any = self.connection
        if connection is None:
            return False
        try:
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        except psycopg.Error:
            return False
        return bool(row) and not row[0]
