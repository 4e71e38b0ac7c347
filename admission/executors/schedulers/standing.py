"""How schedulers stand, as the last cycle left it, for every page: no page asks the database.

It may be lost at any time: the next cycle writes it anew.
"""

from __future__ import annotations

import msgspec
import redis.exceptions

from admission.executors.schedulers import registered
from admission.executors.schedulers.models import Scheduler
from headroom.jobs.words import lasting
from headroom.schedulers.contract import SchedulerKind, WhenAway
from telemetry import stream

__all__ = ["AWAY_S", "Standing", "publish", "read"]

_KEY = "schedulers:standing"
#: Without a cycle for so long, s, pages say by themselves that nobody decides.
_KEPT_S = 3600
#: A bridge that was not heard for this long is away, s: no job is given to its nodes.
AWAY_S = 30.0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler. ``seen_at``: when its bridge was heard last, Unix s."""

    name: str
    kind: SchedulerKind
    when_away: WhenAway
    seen_at: float

    def is_away(self, now: float) -> bool:
        return now - self.seen_at > AWAY_S

    def sentence(self, now: float) -> str:
        """Return what becomes of new jobs without Headroom, and whether that is so now."""
        kind = self.kind.title()
        waits = "wait for it" if self.when_away is WhenAway.CLOSED else "start unheld"
        if self.is_away(now):
            silent = lasting(now - self.seen_at)
            return f"{kind} {self.name}: its bridge was not heard for {silent}; new jobs {waits}"
        return f"{kind} {self.name}: while Headroom is away, new jobs {waits}"


def publish() -> None:
    """Write down how all schedulers stand. One query, where there are any."""
    if not registered.names():
        return
    found = [
        Standing(
            name=row.name,
            kind=SchedulerKind(row.kind),
            when_away=WhenAway(row.when_away),
            seen_at=row.seen_at.timestamp(),
        )
        for row in Scheduler.objects.all()
    ]
    stream.connection().set(_KEY, msgspec.json.encode(found), ex=_KEPT_S)


def read() -> list[Standing]:
    """Return how schedulers stand; nothing where nobody knows."""
    try:
        said = stream.connection().get(_KEY)
    except redis.exceptions.RedisError:
        return []
    return msgspec.json.decode(said, type=list[Standing]) if isinstance(said, bytes) else []
