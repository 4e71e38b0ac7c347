"""Periodic tasks: when each was last done, and whether that is recent enough.

Beat numbers its messages, and says in Redis which number of each task is the newest and whether it
waits still. A message is sent when the one before was taken up, or may be lost; whoever takes one
up does so for all that were sent until then, and the others are passed over. No clock is in that:
the ``expires`` of Celery compares the clock of the sender with that of the receiver, and a worker
whose clock is some seconds ahead would drop all.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import celery
import redis
from django.conf import settings

from config.clock import Moment
from telemetry import stream

__all__ = [
    "AHEAD",
    "CONTROL",
    "LATE",
    "STARTING",
    "Loop",
    "LoopTask",
    "announce",
    "begin",
    "judge",
    "pace_s",
    "read",
    "say_done",
]

#: Without these nobody is in control: the dead-man's switch is silent when one of them is not ok.
CONTROL = ("writer", "policies", "admission", "playbooks", "restrictions", "deliver")
#: A loop is late after so many paces, and not before this, s.
_LATE_PACES = 3.0
_LATE_S = 30.0
#: What comes more seldom than this may be unheard of after a start, s.
_SELDOM_S = 300.0
#: Clocks of two machines may differ by this, s.
_SLACK_S = 2.0

AHEAD = "its clock is ahead of ours"
LATE = "late"
STARTING = "not done since the start"

_BEGUN = "loops:begun"
_NUMBERS = "loops:number"
_TAKEN = "loops:taken"
_WAITING = "loops:waiting"
_DONE = "loops:done"
#: The header of a message of beat: ``NAME NUMBER``.
_HEADER = "turn"


@dataclass(frozen=True)
class Loop:
    """The state of one loop. ``age_s`` is None where nobody has heard of it."""

    name: str
    pace_s: float
    age_s: float | None
    ok: bool
    why: str = ""


# --- The sender ----------------------------------------------------------------------------------


def pace_s(entry: Mapping[str, Any]) -> float:
    """Return how often an entry of ``CELERY_BEAT_SCHEDULE`` is to be done, s."""
    return float(entry["schedule"])


def begin() -> None:
    """Note that beat has begun: loops not done yet are not late yet."""
    with suppress(redis.RedisError):
        stream.connection().set(_BEGUN, str(Moment.now()))


def announce(name: str, *, again: bool) -> dict[str, str] | None:
    """Return the headers of the next message of ``name``; None while the last one still waits.

    ``again``: it has waited for so long that it may be lost; the next one takes its place.
    """
    client = stream.connection()
    if not again and client.hexists(_WAITING, name):
        return None
    number = client.hincrby(_NUMBERS, name, 1)
    client.hset(_WAITING, name, str(number))
    return {_HEADER: f"{name} {number}"}


# --- The receiver --------------------------------------------------------------------------------


class LoopTask(celery.Task):  # type: ignore[type-arg]
    """A task that is skipped when it was done since beat sent this message.

    One that returns False has not done its work: another process is at it, or a part failed.
    """

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        turn = getattr(self.request, _HEADER, None)
        if turn is None:
            return super().__call__(*args, **kwargs)
        name, _, number = str(turn).partition(" ")
        if not _take_up(name, int(number)):
            return None
        done = super().__call__(*args, **kwargs)
        if done is not False:
            say_done(name)
        return done


def _take_up(name: str, number: int) -> bool:
    """Take up all messages sent until now; False where this one was taken up before."""
    with suppress(redis.RedisError):
        client = stream.connection()
        taken, newest = cast(
            tuple[bytes | None, bytes | None],
            (client.hget(_TAKEN, name), client.hget(_NUMBERS, name)),
        )
        if taken is not None and int(taken) >= number:
            return False
        client.hset(_TAKEN, name, str(max(number, int(newest or 0))))
        client.hdel(_WAITING, name)
    return True


def say_done(name: str) -> None:
    """Note that a loop has been done just now."""
    with suppress(redis.RedisError):
        stream.connection().hset(_DONE, name, str(Moment.now()))


# --- Whoever wants to know -----------------------------------------------------------------------


def read(client: redis.Redis, now: Moment) -> list[Loop]:
    """Return the states of all loops. One round trip."""
    pipe = client.pipeline(transaction=False)
    pipe.hgetall(_DONE)
    pipe.get(_BEGUN)
    found, begun = cast(tuple[dict[bytes, bytes], bytes | None], pipe.execute())
    begun_at = _parsed(begun) if begun else None
    done = {name.decode(): _parsed(moment) for name, moment in found.items()}
    schedule: Mapping[str, Mapping[str, Any]] = settings.CELERY_BEAT_SCHEDULE
    return [
        judge(name, pace_s(entry), done.get(name), begun_at, now)
        for name, entry in schedule.items()
    ]


def _parsed(moment: bytes) -> Moment | None:
    try:
        return Moment.parse(moment.decode())
    except ValueError:
        return None


def judge(name: str, pace: float, done: Moment | None, begun: Moment | None, now: Moment) -> Loop:
    """Return the state of a loop that is due every ``pace`` s and was last ``done`` then. Pure.

    ``begun`` is when beat was started last: what has not been done since is not late at once. An
    age below zero is never ok: whoever did it has another clock than we have.
    """
    most_s = max(_LATE_S, _LATE_PACES * pace)
    age_s = done.age_s(now) if done else None
    if age_s is not None and age_s < -_SLACK_S:
        return Loop(name, pace, age_s, ok=False, why=AHEAD)
    if age_s is not None and age_s <= most_s:
        return Loop(name, pace, age_s, ok=True)
    starts = begun is None or 0 <= begun.age_s(now) <= most_s
    if starts and age_s is None and pace >= _SELDOM_S:
        return Loop(name, pace, age_s, ok=True)
    return Loop(name, pace, age_s, ok=False, why=STARTING if starts else LATE)
