"""The short way for good batches: before Django, and several at a time.

What Django does for a request, with its middleware, costs as much as the batch itself, and a good
batch needs none of it. Batches that come at the same moment share one thread and one round trip to
Redis. Whatever else a batch may be is handed on: refused ones get their answer, their entry in the
log and their note on the Agents page from ``telemetry.views``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headroom.contracts import MAX_BATCH_BYTES, TelemetryAck, decode_batch
from telemetry import intake, metrics
from telemetry.views import is_json
from telemetry.ways_in.errors import JSON
from telemetry.ways_in.requests import agent_of, decompress

__all__ = ["HEADERS", "MAX_BATCH_BYTES", "PATH", "Post", "take_all"]

PATH: Final = "/api/v1/telemetry"
#: Of the answer to a good batch, which is 202.
HEADERS: Final = [
    ("Content-Type", JSON),
    # No browser is to show it.
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]


@dataclass(frozen=True, slots=True)
class Post:
    """What may be a batch, as it came."""

    authorization: str
    content_type: str
    encoding: str
    body: bytes


def take_all(posts: Sequence[Post]) -> list[bytes | None]:
    """Take the good batches among ``posts``; return the body of the answer to each.

    None where it has to be tried once more: where what is wrong has an answer, and the database may
    be asked about names that are new. All who push would wait for that here. Nothing is lost by
    it: a batch that was appended twice is stored once.
    """
    now = time.time()
    outcomes = intake.take_all([_checked(post, now) for post in posts])
    return [_answer(outcome) for outcome in outcomes]


def _checked(post: Post, now: float) -> intake.Checked | None:
    try:
        scope = agent_of(post.authorization)
        intake.check_pace(scope)
        plain = decompress(post.body, post.encoding)
        batch = decode_batch(plain, json=is_json(post.content_type))
        return intake.check(batch, scope, now, may_wait=False)
    except Exception:
        return None


def _answer(ack: TelemetryAck | None) -> bytes | None:
    if ack is None:
        return None
    _accepted.inc()
    return msgspec.json.encode(ack)


_accepted = metrics.BATCHES.labels("accepted")
