"""Layouts that agents have agreed on with the server: kept in Redis, known in each process.

A layout is looked at by name once, and its batches are then known by its id. What it says is an
agent's own: the id of another agent's layout is unknown. Where Redis has lost it the agent is told
so, and agrees again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np

from fleet import snapshot
from headroom.contracts import (
    MAX_SKEW_S,
    AgentStatus,
    BatchError,
    GpuColumns,
    LinkColumns,
    MeterColumns,
    NodeReport,
    TelemetryBatch,
)
from headroom.layouts import BLOCKS, HEADER_BYTES, JOB, Header, Layout, row_bytes
from telemetry import checks, naming, stream
from telemetry.directory import AgentScope, Names, names_of
from telemetry.rows import LAYOUT, Packed, Unjudged
from telemetry.stream import Message

__all__ = [
    "Agreed", "agree", "agree_all", "check", "find", "forget", "known", "learn", "unknown_layout",
]  # fmt: skip

#: Layouts of one agent. It has one at a time; each but the newest goes with an agent's restart.
_MOST_OF_ONE = 8
_KEPT_S = 2 * 86_400
#: Layouts that a process knows.
_MOST_KNOWN = 50_000


@dataclass(frozen=True, slots=True)
class Agreed:
    """A layout with what it was looked up in: good for as long as those are the same."""

    layout: Layout
    scope: AgentScope
    names: Names
    #: of each block: its name, its columns, the ids of its things by place, the bytes of a row
    blocks: tuple[tuple[str, str, bytes, int], ...]
    #: of each block, the jobs of which its rows have the places
    jobs_of: dict[str, list[str]]

    def message(self, header: Header, body: bytes, received_at: float) -> Message:
        """Return a batch as the stream carries it. Raises :class:`BatchError`."""
        return Message(
            layout=LAYOUT,
            agent_id=self.scope.agent_id,
            boot_id=self.layout.boot_id,
            seq=header.seq,
            oldest_seq=header.oldest_seq,
            sent_at=header.sent_at,
            received_at=received_at,
            status=AgentStatus(
                version=self.layout.version,
                spooled_batches=header.spooled_batches,
                dropped_batches=header.dropped_batches,
                thinned_rows=header.thinned_rows,
                errors=header.errors,
                skew_s=header.skew_s if abs(header.skew_s) <= MAX_SKEW_S else None,
            ),
            packed=self._packed(header, body),
        )

    def _packed(self, header: Header, body: bytes) -> Packed:
        """Return the rows of a batch, of which nobody has looked at the values."""
        view, at = memoryview(body), HEADER_BYTES
        unjudged = []
        for (block, columns, ids, width), rows in zip(self.blocks, header.rows, strict=True):
            if rows:
                data, jobs = view[at : at + rows * width], self.jobs_of[block]
                unjudged.append(Unjudged(block, columns, ids, data, jobs))
                at += rows * width
        if at != len(body):
            raise BatchError(
                "malformed_body",
                f"{len(body)} bytes, where header and rows have {at}",
                hint="see 'Rows of fixed width' in docs/reference/telemetry.md",
            )
        return Packed({}, [], [], [], None, unjudged=unjudged)


_known: dict[tuple[int, bytes], Agreed] = {}


def known(scope: AgentScope, layout_id: bytes) -> Agreed | None:
    """Return a layout of the agent as this process knows it; it asks nobody.

    None also where somebody has to be asked whether the agent may name its jobs.
    """
    found = _known.get((scope.agent_id, layout_id))
    return found if found and naming.are_jobs_known(scope, found.layout.jobs) else None


def forget() -> None:
    """Have this process look all layouts up again."""
    _known.clear()


def agree(layout: Layout, scope: AgentScope) -> str:
    """Check ``layout`` and return its id. Raises :class:`BatchError`."""
    (told,) = agree_all([check(layout, scope, names_of(snapshot.fresh()))])
    if isinstance(told, BatchError):
        raise told
    return told


def check(layout: Layout, scope: AgentScope, names: Names) -> Agreed:
    """Return ``layout`` for :func:`agree_all`. It asks nobody. Raises :class:`BatchError`."""
    checks.check_agent(layout, scope)
    return _looked_up(layout, scope, names)


def agree_all(wanted: Sequence[Agreed]) -> list[str | BatchError]:
    """Keep those whose names the agents may use; return the id of each, or what is wrong with it.

    Few queries and two round trips to Redis for all of them together, but for each job that is
    Headroom's own and not known to be placed on its agent's nodes.
    """
    naming.learn([_brought(each.scope, each.layout) for each in wanted])
    errors = [_error(each) for each in wanted]
    good = [each for each, error in zip(wanted, errors, strict=True) if error is None]
    ids = iter(_keep(good))
    return [next(ids) if error is None else error for error in errors]


def _error(wanted: Agreed) -> BatchError | None:
    """Return what is wrong with the names that a layout brings."""
    try:
        naming.check_boot_id(wanted.scope, wanted.layout.boot_id)
    except BatchError as error:
        return error
    return next(iter(_refused_jobs(wanted.layout, wanted.scope)), None)


def _keep(agreed: Sequence[Agreed]) -> list[str]:
    """Keep layouts in Redis, where each agent has but so many; return their ids."""
    pipe = stream.connection().pipeline(transaction=False)
    for each in agreed:
        pipe.hlen(_key(each.scope))
    ids = []
    for each, count in zip(agreed, pipe.execute(), strict=True):
        body, key = msgspec.msgpack.encode(each.layout), _key(each.scope)
        layout_id = hashlib.blake2b(body, digest_size=16).digest()
        if count >= _MOST_OF_ONE:
            pipe.delete(key)
        pipe.hset(key, layout_id.hex(), body)
        pipe.expire(key, _KEPT_S)
        ids.append(layout_id)
    pipe.execute()
    for layout_id, each in zip(ids, agreed, strict=True):
        _know(layout_id, each)
    return [layout_id.hex() for layout_id in ids]


def find(scope: AgentScope, layout_id: bytes) -> Agreed:
    """Return a layout of the agent as it is now. Of one that is :func:`known` it asks nobody.

    Raises :class:`BatchError` where there is none, or where it names what is gone or another's. One
    whose jobs are no longer the agent's to name is unknown: in the typed form the readings of when
    they were are taken all the same.
    """
    names = names_of(snapshot.current())
    found = known(scope, layout_id)
    if found is None:
        found = _admitted(_kept(scope, layout_id), scope, names)
    elif found.names is names and found.scope == scope:
        return found
    else:
        found = _looked_up(found.layout, scope, names)
    _know(layout_id, found)
    return found


def learn(wanted: Collection[tuple[AgentScope, bytes]]) -> None:
    """Look up those of many agents' layouts that are new to this process, all together.

    Few queries and one round trip to Redis. What cannot be is left to :func:`find`, which says why.
    """
    new = [(scope, layout_id) for scope, layout_id in wanted if known(scope, layout_id) is None]
    if not new:
        return
    pipe = stream.connection().pipeline(transaction=False)
    for scope, layout_id in new:
        pipe.hget(_key(scope), layout_id.hex())
    kept = [(*each, _decoded(body)) for each, body in zip(new, pipe.execute(), strict=True) if body]
    naming.learn([_brought(scope, each) for scope, _, each in kept])
    names = names_of(snapshot.current())
    for scope, layout_id, layout in kept:
        with suppress(BatchError):
            _know(layout_id, _admitted(layout, scope, names))


def _admitted(layout: Layout, scope: AgentScope, names: Names) -> Agreed:
    naming.check_boot_id(scope, layout.boot_id)
    if _refused_jobs(layout, scope):
        raise unknown_layout()
    return _looked_up(layout, scope, names)


def _refused_jobs(layout: Layout, scope: AgentScope) -> list[BatchError]:
    return [*naming.refused_jobs(scope, (), set(layout.jobs), time.time()).values()]


def _brought(scope: AgentScope, layout: Layout) -> naming.Brought:
    return naming.Brought(scope, layout.boot_id, layout.jobs)


def _key(scope: AgentScope) -> str:
    return f"telemetry:layouts:{scope.agent_id}"


def _kept(scope: AgentScope, layout_id: bytes) -> Layout:
    kept = cast(bytes | None, stream.connection().hget(_key(scope), layout_id.hex()))
    if kept is None:
        raise unknown_layout()
    return _decoded(kept)


def _decoded(kept: bytes) -> Layout:
    return msgspec.msgpack.decode(kept, type=Layout)


def _know(layout_id: bytes, agreed: Agreed) -> None:
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[agreed.scope.agent_id, layout_id] = agreed


def unknown_layout() -> BatchError:
    """Return the error of a batch whose layout nobody knows (any more)."""
    return BatchError(
        "unknown_layout",
        "the agent has agreed on no such layout, or the server has lost it",
        field="layout",
        hint="agree on it again by POST /api/v1/telemetry/layouts, and send the batch again",
    )


def _looked_up(layout: Layout, scope: AgentScope, names: Names) -> Agreed:
    checks.check_names(_as_batch(layout), scope, names)
    nodes = [checks.known_node("nodes", each.node, scope, names) for each in layout.nodes]
    gpus = zip(nodes, layout.nodes, strict=True)
    ids = {
        "gpus": [node.gpu_ids[gpu] for node, each in gpus for gpu in each.gpus],
        "host": [node.node_id for node in nodes],
        "links": [thing.id for name in layout.links if (thing := names.link(name))],
        "meters": [thing.id for name in layout.meters if (thing := names.meter(name))],
    }
    blocks = tuple(_block(name, layout, ids[name]) for name in BLOCKS)
    jobs_of = {name: layout.jobs if JOB in layout.columns.get(name, ()) else [] for name in BLOCKS}
    return Agreed(layout, scope, names, blocks, jobs_of)


def _block(name: str, layout: Layout, ids: list[int]) -> tuple[str, str, bytes, int]:
    columns = layout.columns.get(name, [])
    return name, " ".join(columns), np.array(ids, "<i4").tobytes(), row_bytes(name, columns)


def _as_batch(layout: Layout) -> TelemetryBatch:
    """Return a batch that names all that a layout does, for the checks that batches go through."""
    return TelemetryBatch(
        agent=layout.agent,
        boot_id=layout.boot_id,
        seq=1,
        oldest_seq=1,
        sent_at=0.0,
        nodes=[
            NodeReport(node=each.node, gpus=GpuColumns(ts=[0.0] * len(each.gpus), gpu=each.gpus))
            for each in layout.nodes
        ],
        links=LinkColumns(ts=[], link=layout.links) if layout.links else None,
        meters=MeterColumns(ts=[], meter=layout.meters) if layout.meters else None,
    )
