"""The fast path for good layouts: before Django, and several at a time.

After a start of a large fleet thousands of agents agree on their layouts within a minute. Those of
the same moment share one thread, few statements and few round trips to Redis. Whatever is not
plainly good is handed on, as batches are: the view says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import redis
from django.db import DatabaseError

from fleet import snapshot
from headroom.contracts import BatchError
from headroom.layouts import PATH, Agreement, decode_layout
from telemetry import agreements, intake
from telemetry.agreements import Agreed
from telemetry.directory import Names, names_of
from telemetry.ingest import batches
from telemetry.ingest.batches import Post, Untaken
from telemetry.ingest.requests import agent_of, decompress

__all__ = ["HEADERS", "PATH", "take_all"]

#: Of the answer to a layout that is agreed on, which is 200.
HEADERS: Final = [*batches.HEADERS, ("Cache-Control", "private, no-store")]


def take_all(posts: Sequence[Post]) -> list[bytes | Untaken]:
    """Agree on the good layouts among ``posts``; return the body of the answer to each.

    Nothing is lost where one is tried once more: the same layout has the same id.
    """
    try:
        return _take(posts)
    except (redis.RedisError, DatabaseError):
        return [Untaken.HANDED_ON] * len(posts)


def _take(posts: Sequence[Post]) -> list[bytes | Untaken]:
    names = names_of(snapshot.fresh())
    looked = {place: found for place, post in enumerate(posts) if (found := _look(post, names))}
    has_room = intake.charge_all([(agreed.scope, size) for agreed, size in looked.values()])
    allowed = [place for place, has in zip(looked, has_room, strict=True) if has]
    told = agreements.agree_all([looked[place][0] for place in allowed])
    ids = dict(zip(allowed, told, strict=True))
    return [_answer(ids.get(place)) for place in range(len(posts))]


def _look(post: Post, names: Names) -> tuple[Agreed, int] | None:
    """Return the layout of ``post`` and the size of its body; None: it is to be handed on."""
    try:
        scope = agent_of(post.authorization)
        intake.check_pace(scope)
        body = decompress(post.body, post.encoding)
        return agreements.check(decode_layout(body), scope, names), len(body)
    except Exception:
        return None


def _answer(told: str | BatchError | None) -> bytes | Untaken:
    if isinstance(told, str):
        return msgspec.json.encode(Agreement(layout=told))
    return Untaken.HANDED_ON
