"""The live sessions of a user, as pages show them."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from accounts.models import Session, User
from accounts.sessions.agents import in_words

__all__ = ["Shown", "of"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A session; ``is_own``: the one in which its page is looked at."""

    row: Session
    browser: str
    is_own: bool


def of(user: User, own_key: str | None) -> list[Shown]:
    """Return the live sessions of ``user``, that with ``own_key`` first, then the last used."""
    live = user.sessions.live(timezone.now()).order_by("-last_seen_at")
    rows = sorted(live, key=lambda each: each.pk != own_key)
    return [Shown(each, in_words(each.agent), is_own=each.pk == own_key) for each in rows]
