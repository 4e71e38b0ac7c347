"""The store of sessions: Postgres, with owner, address and both lifetimes in columns."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.db.models import QuerySet
from django.utils import timezone

from accounts.sessions.facts import Facts
from accounts.sessions.models import Session


class SessionStore(DatabaseStore):
    """Django's store over :class:`Session`. ``SESSION_ENGINE`` names this module."""

    #: when a person last asked for something, as it was when the session was loaded
    last_seen_at: datetime | None = None

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        """Return the row of ``data``. Saving counts as being seen."""
        row = cast("Session", super().create_model_instance(data))
        facts = Facts.of(data)
        row.user_id = data.get(SESSION_KEY)
        row.started_at = facts.started_at or timezone.now()
        row.address, row.agent = facts.address, facts.agent
        return row

    @classmethod
    def clear_expired(cls) -> None:
        """Remove the rows of sessions that are over."""
        Session.objects.over(timezone.now()).delete()

    def _get_session_from_db(self) -> Session | None:
        live: QuerySet[Session] = Session.objects.live(timezone.now())
        found = live.filter(pk=self.session_key).first()
        if found is None:
            self._session_key = None
            return None
        self.last_seen_at = found.last_seen_at
        return found
