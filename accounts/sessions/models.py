"""Sessions of browsers, with the facts that their owners want to know."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac


class SessionQuerySet(models.QuerySet["Session"]):
    def live(self, now: datetime) -> SessionQuerySet:
        """Those within their absolute and their idle lifetime."""
        return self.filter(
            expire_date__gt=now,
            started_at__gt=now - timedelta(hours=settings.SESSION_MAX_H),
            last_seen_at__gt=now - timedelta(hours=settings.SESSION_IDLE_H),
        )

    def over(self, now: datetime) -> SessionQuerySet:
        """Those that open nothing any more."""
        return self.exclude(Q(pk__in=self.live(now).values("pk")))


class Session(AbstractBaseSession):
    """A session as the store keeps it; without a user before login.

    The columns beside the data are copies for lists and for the two lifetimes.
    """

    user = models.ForeignKey(
        "accounts.User", on_delete=models.CASCADE, null=True, related_name="sessions"
    )
    started_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    address = models.GenericIPAddressField(null=True)
    agent = models.CharField(max_length=255, blank=True)

    objects: ClassVar[Any] = SessionQuerySet.as_manager()  # type: ignore[assignment]

    @property
    def handle(self) -> str:
        """An id for pages and forms: it does not let its reader take the session over."""
        return salted_hmac("accounts.sessions", self.session_key).hexdigest()[:16]
