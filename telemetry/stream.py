"""The Redis stream between the web processes and the writer.

A message is removed only after its rows are committed, and an agent keeps each batch until it is
told so; the stream may therefore lose everything at any time and no reading is lost.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import msgspec
import redis
from django.conf import settings

from headroom.contracts import AgentStatus, TelemetryBatch
from telemetry.ingest import rate
from telemetry.rows import LAYOUT, Packed

#: A writer says at least this often that it is alive; then another may be asked for. One too many
#: does no harm, since only one gets the lock; one too few leaves readings unseen for this long.
WRITING_TTL_S = 3
_FORWARDING = "telemetry:inbox:asked"
#: Messages that are read in one go.
_READ_COUNT = 100

# KEYS: stream, bytes in it, durable seqs, late refusals, sign of a writer; then of each message its
# agent's bucket of rows.
# ARGV: most messages, most bytes, life of the sign; then of each message: message, agent, rows,
# rows per second, rows of a bucket.
# What is answered: whether a writer is wanted; then of each message nothing where the stream is
# full, how long to wait, or durable seq and late refusals.
_APPEND = f"""
{rate.FUNCTION}
local now = time_now()
local length = redis.call('XLEN', KEYS[1])
local waiting = tonumber(redis.call('GET', KEYS[2]) or 0)
local grown, answers = 0, {{0}}
for i = 1, #KEYS - 5 do
    local at = 5 * i - 1
    local message, agent, rows = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
    local wait = nil
    if length >= tonumber(ARGV[1]) or waiting + grown >= tonumber(ARGV[2]) then
        answers[i + 1] = false
    else
        local rate, bucket = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
        wait = wait_for_rows(now, KEYS[5 + i], rows, rate, bucket)
        if wait then
            answers[i + 1] = tostring(wait)
        else
            redis.call('XADD', KEYS[1], '*', 'm', message)
            length, grown = length + 1, grown + #message
            answers[i + 1] = {{
                redis.call('HGET', KEYS[3], agent), redis.call('HGET', KEYS[4], agent)
            }}
        end
    end
end
if grown > 0 then
    redis.call('INCRBY', KEYS[2], grown)
    if redis.call('SET', KEYS[5], 1, 'NX', 'EX', ARGV[3]) then answers[1] = 1 end
end
return answers
"""

# KEYS: stream, bytes in it. ARGV: the first id that stays, bytes of what goes. An empty stream has
# no bytes, whatever was lost in between.
_REMOVE = """
redis.call('XTRIM', KEYS[1], 'MINID', '=', ARGV[1])
if redis.call('XLEN', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[2])
else
    redis.call('DECRBY', KEYS[2], ARGV[2])
end
"""


class Message(msgspec.Struct, array_like=True):
    """A message of the stream: a batch that was checked, its agent, and when it came."""

    layout: int
    agent_id: int
    boot_id: str
    seq: int
    oldest_seq: int
    sent_at: float
    received_at: float
    status: AgentStatus | None
    packed: Packed

    @classmethod
    def of(
        cls, batch: TelemetryBatch, agent_id: int, packed: Packed, received_at: float
    ) -> Message:
        """Return the message of a batch whose rows are ``packed``."""
        return cls(
            layout=LAYOUT,
            agent_id=agent_id,
            boot_id=batch.boot_id,
            seq=batch.seq,
            oldest_seq=batch.oldest_seq,
            sent_at=batch.sent_at,
            received_at=received_at,
            status=batch.status,
            packed=packed,
        )

    @property
    def position_key(self) -> tuple[int, str]:
        return (self.agent_id, self.boot_id)


class Full(Exception):
    """Too much waits in the stream already."""


class TooFast(Exception):
    """The agent has sent its share of rows. ``wait_s`` is when there is room for these."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Appended:
    """The answer to an appended message. ``refused`` is for :mod:`telemetry.late` to read."""

    durable_seq: int | None
    wants_writer: bool
    refused: bytes | None = None


@dataclass(frozen=True)
class Entry:
    """A message in the stream. ``message`` is None where another release wrote it."""

    id: bytes
    size: int
    message: Message | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


@cache
def connection() -> redis.Redis:
    """Return this process's Redis client (a pool of connections)."""
    return redis.Redis(connection_pool=_new_pool())


def _new_pool() -> redis.ConnectionPool:
    return redis.ConnectionPool.from_url(
        settings.REDIS_URL, socket_timeout=5.0, socket_connect_timeout=2.0, health_check_interval=30
    )


#: Shard, agent id and boot_id: whose durable seq is kept where.
PositionOf: TypeAlias = tuple[int, int, str]
#: Keys and arguments of a script.
Call: TypeAlias = tuple[list[str], list[str | int | bytes]]
_Command: TypeAlias = tuple[str | int | bytes, ...]
#: A message with its shard, and the share of rows against which it counts.
Charged: TypeAlias = tuple[int, Message, rate.Share | None]


class _Script:
    """A script that the server runs. Called on a connection that the calling thread keeps.

    Handing connections out of a pool, to threads that each need one all the time, would cost more
    than the command itself.
    """

    _own = threading.local()

    def __init__(self, text: str) -> None:
        self._text = text
        self._digest = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - Redis' name for it

    def __call__(self, keys: list[str], arguments: list[str | int | bytes]) -> Any:
        (answer,) = self.each([(keys, arguments)])
        if isinstance(answer, redis.ResponseError):
            raise answer
        return answer

    def each(self, calls: Sequence[Call]) -> list[Any]:
        """Run the script once for each call, in one round trip; a refused call's error is its
        answer."""
        answers = self._call([("EVALSHA", self._digest, *_rest(call)) for call in calls])
        unknown = [
            place
            for place, answer in enumerate(answers)
            if isinstance(answer, redis.exceptions.NoScriptError)
        ]
        if unknown:
            again = self._call([("EVAL", self._text, *_rest(calls[place])) for place in unknown])
            for place, answer in zip(unknown, again, strict=True):
                answers[place] = answer
        return answers

    def _call(self, commands: list[_Command]) -> list[Any]:
        try:
            return self._ask(commands)
        except redis.ConnectionError:
            # Redis may have been started anew since the last call.
            return self._ask(commands)

    def _ask(self, commands: list[_Command]) -> list[Any]:
        link = self._own_link()
        try:
            link.send_packed_command(link.pack_commands(commands))
            return [_response(link) for _ in commands]
        except (redis.ConnectionError, redis.TimeoutError):
            link.disconnect()
            raise

    def _own_link(self) -> Any:
        link = getattr(self._own, "link", None)
        if link is None:
            link = self._own.link = _new_pool().make_connection()
        return link


def _rest(call: Call) -> tuple[str | int | bytes, ...]:
    keys, arguments = call
    return (len(keys), *keys, *arguments)


def _response(link: Any) -> Any:
    """Return the server's answer, also where that is an error: others' answers follow it."""
    try:
        return link.read_response()
    except redis.ResponseError as error:
        return error


#: Stands for a share where none counts.
_ANY = rate.Share(1, 1)

_append_script = _Script(_APPEND)
_remove_script = _Script(_REMOVE)
_take_rows_script = _Script(rate.TAKE)


def shard_of(agent_name: str) -> int:
    """Return the stream of an agent. All its batches go through one, so that their order holds."""
    return zlib.crc32(agent_name.encode()) % settings.TELEMETRY_SHARDS


def _stream(shard: int) -> str:
    return f"telemetry:{shard}"


def _bytes(shard: int) -> str:
    return f"telemetry:{shard}:bytes"


def _writing(shard: int) -> str:
    return f"telemetry:{shard}:writing"


def _durable(shard: int) -> str:
    return f"telemetry:{shard}:durable"


def _refused(shard: int) -> str:
    return f"telemetry:{shard}:refused"


def backlog(shard: int) -> int:
    """Return the number of messages that wait."""
    return connection().xlen(_stream(shard))


def waiting(client: redis.Redis) -> tuple[int, float | None]:
    """Return how many messages wait in all, and for how long the first has, s.

    None: none waits, or the clock of Redis was set back since, so that nobody can say.
    """
    pipe = client.pipeline(transaction=False)
    pipe.time()
    for shard in range(settings.TELEMETRY_SHARDS):
        pipe.xlen(_stream(shard))
        pipe.xrange(_stream(shard), count=1)
    (seconds, micros), *found = pipe.execute()
    now = seconds + micros / 1e6
    heads = [int(head[0][0].split(b"-")[0]) / 1e3 for head in found[1::2] if head]
    lag_s = now - min(heads) if heads else None
    return sum(found[::2]), lag_s if lag_s is None or lag_s >= 0 else None


def append(shard: int, message: Message, share: rate.Share | None = None) -> Appended:
    """Append one message and look up how far the agent's batches are durable. One round trip.

    Its rows count against ``share``, the agent's, where one is given. Raises :class:`Full` and
    :class:`TooFast`, with nothing appended.
    """
    (outcome,) = append_all([(shard, message, share)])
    if isinstance(outcome, Appended):
        return outcome
    raise outcome


def append_all(messages: Sequence[Charged]) -> list[Appended | Exception]:
    """Append messages, each to the stream of its shard and of its agent's share, in one round trip.

    Each outcome is what :func:`append` returns or raises.
    """
    by_shard: dict[int, list[int]] = {}
    for place, (shard, _, _) in enumerate(messages):
        by_shard.setdefault(shard, []).append(place)
    if not by_shard:
        return []
    found = [[messages[place] for place in places] for places in by_shard.values()]
    answers = _append_script.each([_append_call(each) for each in found])
    outcomes: dict[int, Appended | Exception] = {}
    for places, answer, each in zip(by_shard.values(), answers, found, strict=True):
        outcomes.update(zip(places, _outcomes(answer, each), strict=True))
    return [outcomes[place] for place in range(len(messages))]


def _append_call(messages: Sequence[Charged]) -> Call:
    shard = messages[0][0]
    keys = [_stream(shard), _bytes(shard), _durable(shard), _refused(shard), _writing(shard)]
    arguments: list[str | int | bytes] = [
        settings.TELEMETRY_MAX_BACKLOG,
        settings.TELEMETRY_MAX_BACKLOG_MB * 2**20,
        WRITING_TTL_S,
    ]
    for _, message, share in messages:
        keys.append(rate.bucket_key(message.agent_id))
        rows = 0 if share is None else message.packed.weight
        arguments += (_encode(message), message.agent_id, rows, *(share or _ANY))
    return keys, arguments


def _outcomes(answer: Any, messages: Sequence[Charged]) -> list[Appended | Exception]:
    if isinstance(answer, redis.ResponseError):
        return [answer] * len(messages)
    wants_writer, *told = answer
    return [
        _outcome(each, message, bool(wants_writer))
        for each, (_, message, _) in zip(told, messages, strict=True)
    ]


def _outcome(told: Any, message: Message, wants_writer: bool) -> Appended | Exception:
    if told is None:
        return Full()
    if isinstance(told, bytes):
        return TooFast(float(told))
    durable, refused = cast(list[Any], told)
    return Appended(_seq_of(durable, message.boot_id), wants_writer, refused)


def take_rows(agent_id: int, rows: int, share: rate.Share) -> None:
    """Count ``rows`` against the agent's share without appending. Raises :class:`TooFast`."""
    (wait_s,) = take_rows_of_all([(agent_id, rows, share)])
    if wait_s is not None:
        raise TooFast(wait_s)


def take_rows_of_all(asked: Sequence[tuple[int, int, rate.Share]]) -> list[float | None]:
    """Count rows against the shares of agents (by id), as :func:`take_rows`, in one round trip.

    Return how long each has to wait, s; None: its rows are counted.
    """
    calls: list[Call] = [
        ([rate.bucket_key(agent_id)], [rows, *share]) for agent_id, rows, share in asked
    ]
    answers = _take_rows_script.each(calls)
    for answer in answers:
        if isinstance(answer, redis.ResponseError):
            raise answer
    return [None if answer is None else float(answer) for answer in answers]


def read(shard: int, count: int, max_bytes: int) -> list[Entry]:
    """Return the oldest messages; they stay in the stream.

    At most ``count``, and no more after ``max_bytes`` of them.
    """
    entries: list[Entry] = []
    size = 0
    start = "-"
    while len(entries) < count and size < max_bytes:
        wanted = min(_READ_COUNT, count - len(entries))
        found = cast(list[Any], connection().xrange(_stream(shard), min=start, count=wanted))
        entries += [_entry(entry_id, fields[b"m"]) for entry_id, fields in found]
        if len(found) < wanted:
            break
        size += sum(len(fields[b"m"]) for _, fields in found)
        start = f"({entries[-1].id.decode()}"
    return entries


def _entry(entry_id: bytes, data: bytes) -> Entry:
    try:
        message = _decode(data)
    except msgspec.MsgspecError:
        message = None
    if message is not None and message.layout != LAYOUT:
        message = None
    return Entry(entry_id, len(data), message)


def remove(shard: int, entries: list[Entry]) -> None:
    """Remove ``entries``, which are the oldest of the stream."""
    time_ms, number = entries[-1].id.split(b"-")
    _remove_script(
        [_stream(shard), _bytes(shard)],
        [f"{time_ms.decode()}-{int(number) + 1}", sum(entry.size for entry in entries)],
    )


def durable_seq(shard: int, agent_id: int, boot_id: str) -> int | None:
    """Return the durable seq that the last writer left here, if Redis still has it."""
    return _seq_of(connection().hget(_durable(shard), str(agent_id)), boot_id)


def _seq_of(found: Any, boot_id: str) -> int | None:
    """Return the seq of a stored ``SEQ BOOT_ID``; None for another boot_id's."""
    if found is None:
        return None
    seq, _, of = cast(bytes, found).decode().partition(" ")
    return int(seq) if of == boot_id else None


def remember_durable(marks: Mapping[PositionOf, int]) -> None:
    """Leave durable seqs that were read from Postgres, unless a writer has left a newer one."""
    pipe = connection().pipeline(transaction=False)
    for (shard, agent_id, boot_id), seq in marks.items():
        pipe.hsetnx(_durable(shard), str(agent_id), f"{seq} {boot_id}")
    pipe.execute()


def late_refusals(shard: int, agent_ids: Sequence[int]) -> list[bytes | None]:
    """Return what writers left of refusals for each agent, as :mod:`telemetry.late` reads it."""
    keys = [str(agent_id) for agent_id in agent_ids]
    return cast(list[bytes | None], connection().hmget(_refused(shard), keys)) if keys else []


def publish_durable(
    shard: int, marks: dict[tuple[int, str], int], refused: Mapping[int, bytes] | None = None
) -> None:
    """Tell the web processes how far agents' batches are committed: {(agent id, boot_id): seq}.

    And, no later than that, what of them was ``refused``, by agent.
    """
    pipe = connection().pipeline(transaction=True)
    if refused:
        pipe.hset(_refused(shard), mapping={str(agent): told for agent, told in refused.items()})
    if marks:
        seqs = {str(agent): f"{seq} {boot_id}" for (agent, boot_id), seq in marks.items()}
        pipe.hset(_durable(shard), mapping=cast(dict[Any, Any], seqs))
    pipe.execute()


def say_writing(shard: int) -> None:
    """Note that a writer is at work, so that none is asked for."""
    connection().set(_writing(shard), 1, ex=WRITING_TTL_S)


def ask_for_writer(shard: int) -> bool:
    """Return True where messages wait and no writer is at work: the caller is to start one."""
    if not backlog(shard):
        return False
    forget_if_clock_was_set_back(_writing(shard), WRITING_TTL_S)
    return bool(connection().set(_writing(shard), 1, nx=True, ex=WRITING_TTL_S))


def forget_if_clock_was_set_back(key: str, ttl_s: float) -> None:
    """Delete a key that lives on for longer than the ``ttl_s`` that it was given.

    Redis keeps the moment of the end by its own clock. Where that was set back by three hours, a
    sign of three seconds would stand for three hours.
    """
    if connection().pttl(key) > ttl_s * 1000:
        connection().delete(key)


def ask_for_forward() -> bool:
    """Return True where nobody has asked for the inbox to be forwarded in the last second."""
    forget_if_clock_was_set_back(_FORWARDING, 1)
    return bool(connection().set(_FORWARDING, 1, nx=True, ex=1))


def say_done(shard: int) -> None:
    """Note that the writer has ended."""
    connection().delete(_writing(shard))
