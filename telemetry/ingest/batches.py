"""The fast path for good batches: before Django, and several at a time.

What Django does for a request, with its middleware, costs as much as the batch itself, and a good
batch needs none of it. Batches that come at the same moment share one thread and one round trip to
Redis. Whatever else a batch may be is handed on: refused ones get their answer, their entry in the
log and their note on the Agents page from ``telemetry.views``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from headroom import layouts
from headroom.contracts import MAX_BATCH_BYTES, BatchError, TelemetryAck, decode_batch
from telemetry import agreements, intake, metrics
from telemetry.directory import AgentScope
from telemetry.ingest.errors import JSON
from telemetry.ingest.requests import agent_of, decompress
from telemetry.intake import Checked, Looked
from telemetry.middleware import GUARDS
from telemetry.views import is_json

__all__ = ["HEADERS", "MAX_BATCH_BYTES", "PATH", "Post", "Untaken", "take_all", "take_new"]

PATH: Final = "/api/v1/telemetry"
#: Of the answer to a good batch, which is 202.
HEADERS: Final = [("Content-Type", JSON), *GUARDS]


@dataclass(frozen=True, slots=True)
class Post:
    """A request that may be a batch, as it came."""

    authorization: str
    content_type: str
    encoding: str
    body: bytes


class Untaken(Enum):
    """Why a post was not taken."""

    #: It brings names that this process does not know. :func:`take_new` may take it.
    NEW_NAMES = auto()
    #: It is no good batch, or could not be appended. The view says what is wrong.
    HANDED_ON = auto()


def take_all(posts: Sequence[Post]) -> list[bytes | Untaken]:
    """Take the good batches among ``posts``; return the body of the answer to each.

    The database is not asked about names that are new: all who push would wait for that here.
    Nothing is lost where a batch is tried once more: one that was appended twice is stored once.
    """
    return _take([_if_known(each) for each in _look_at(posts, _look_if_known)])


def take_new(posts: Sequence[Post]) -> list[bytes | Untaken]:
    """Take batches that bring new names, as :func:`take_all`: these get their rows, all together.

    Raises what the database raises.
    """
    agreements.learn([*_layouts_of(posts)])
    looked = _look_at(posts, _look)
    intake.learn(each for each in looked if isinstance(each, Looked))
    return _take([_if_allowed(each) for each in looked])


def _layouts_of(posts: Sequence[Post]) -> Iterator[tuple[AgentScope, bytes]]:
    """Yield the agents of batches of rows, with the ids of their layouts."""
    for post in posts:
        if post.content_type == layouts.CONTENT_TYPE:
            # One that cannot be read is refused when it is looked at.
            with suppress(Exception):
                yield agent_of(post.authorization), decompress(post.body, post.encoding)[:16]


def _look_at(
    posts: Sequence[Post], look: Callable[[Post, AgentScope, float], Looked | Checked | Untaken]
) -> list[Looked | Checked | Untaken]:
    now = time.time()
    found: list[Looked | Checked | Untaken] = []
    for post in posts:
        try:
            scope = agent_of(post.authorization)
            intake.check_pace(scope)
            found.append(look(post, scope, now))
        except Exception:
            found.append(Untaken.HANDED_ON)
    return found


def _look(post: Post, scope: AgentScope, now: float) -> Looked | Checked:
    plain = decompress(post.body, post.encoding)
    if post.content_type == layouts.CONTENT_TYPE:
        return intake.look_at_rows(plain, scope, now)
    return intake.look(decode_batch(plain, json=is_json(post.content_type)), scope, now)


def _look_if_known(post: Post, scope: AgentScope, now: float) -> Looked | Checked | Untaken:
    """Look at a post without the database, which a layout that is new to this process needs."""
    if post.content_type == layouts.CONTENT_TYPE:
        plain = decompress(post.body, post.encoding)
        if agreements.known(scope, plain[:16]) is None:
            return Untaken.NEW_NAMES
        return intake.look_at_rows(plain, scope, now)
    return _look(post, scope, now)


def _if_known(looked: Looked | Checked | Untaken) -> Checked | Untaken:
    if isinstance(looked, Looked) and not looked.has_known_names:
        return Untaken.NEW_NAMES
    return _if_allowed(looked)


def _if_allowed(looked: Looked | Checked | Untaken) -> Checked | Untaken:
    if not isinstance(looked, Looked):
        return looked
    try:
        return intake.admit(looked)
    except BatchError:
        return Untaken.HANDED_ON


def _take(batches: Sequence[Checked | Untaken]) -> list[bytes | Untaken]:
    acks = iter(intake.take_all([each for each in batches if isinstance(each, Checked)]))
    return [each if isinstance(each, Untaken) else _answer(next(acks)) for each in batches]


def _answer(ack: TelemetryAck | None) -> bytes | Untaken:
    if ack is None:
        return Untaken.HANDED_ON
    _accepted.inc()
    return msgspec.json.encode(ack)


_accepted = metrics.BATCHES.labels("accepted")
