"""Refusals that come late: of rows that were judged after their batch had been taken.

The writer leaves them in Redis beside the durable mark, and each answer to the agent has those of
batches that it still holds. So an agent that lets go of a batch has been told what was wrong with
it. Redis may lose them; how many rows were refused is in Postgres too, with the agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headroom.contracts import LateRefusal
from telemetry import stream
from telemetry.ingest.refusals import MAX_TOLD, Refusals
from telemetry.stream import Message

__all__ = ["after", "of", "told"]


class _Late(msgspec.Struct, array_like=True):
    boot_id: str
    refused: list[LateRefusal]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Late).decode


def of(kept: bytes | None, boot_id: str, oldest_seq: int = 0) -> list[LateRefusal]:
    """Return what is ``kept`` of batches of one life of an agent, from ``oldest_seq`` on."""
    if kept is None:
        return []
    late = _decode(kept)
    return [each for each in late.refused if late.boot_id == boot_id and each.seq >= oldest_seq]


def told(shard: int, agent_id: int, boot_id: str) -> list[LateRefusal]:
    """Return all that is kept of one life of an agent. One round trip."""
    (kept,) = stream.late_refusals(shard, [agent_id])
    return of(kept, boot_id)


def after(shard: int, refused: Sequence[tuple[Message, Refusals]]) -> Mapping[int, bytes]:
    """Return what is to be kept for agents of which something was ``refused`` in this round.

    What their batches of before have left is read: one round trip, where there is anything.
    """
    if not refused:
        return {}
    agents = sorted({message.agent_id for message, _ in refused})
    known = dict(zip(agents, stream.late_refusals(shard, agents), strict=True))
    for message, refusals in refused:
        late = LateRefusal(seq=message.seq, rows=refusals.rows.total(), errors=refusals.told)
        earlier = of(known[message.agent_id], message.boot_id, message.oldest_seq)
        earlier = [each for each in earlier if each.seq != message.seq][-MAX_TOLD:]
        known[message.agent_id] = _encode(_Late(message.boot_id, _shortened([*earlier, late])))
    return {agent: kept for agent, kept in known.items() if kept is not None}


def _shortened(refused: list[LateRefusal]) -> list[LateRefusal]:
    """Return ``refused`` with no more errors than one answer tells; the newest go."""
    room, kept = MAX_TOLD, []
    for each in refused:
        kept.append(msgspec.structs.replace(each, errors=each.errors[:room]))
        room -= len(kept[-1].errors)
    return kept
