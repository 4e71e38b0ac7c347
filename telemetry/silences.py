"""Silences of agents: times of which they have no readings.

A silence lies between two readings that are too far apart, by the agent's own clock. What an agent
kept on its disk while nobody took it is no silence: it comes late, in order. What comes out of
order, as after a loss of Redis, takes its time out of the silences that were noted meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from psycopg import Cursor

from telemetry import sql
from telemetry.rollups.spec import MAX_GAP_S
from telemetry.stream import Message

__all__ = ["Heard", "Silences", "merged"]

#: A time of which readings tell, Unix s: from the first to the last.
Heard: TypeAlias = tuple[float, float]


class Silences:
    """Notes silences of agents, for one writer: it knows how far it has heard each.

    After a failure, also one of the commit, this object says nothing true any more.
    """

    def __init__(self) -> None:
        self._heard_to: dict[int, float] = {}

    def save(self, cursor: Cursor[Any], messages: Iterable[Message], now: float) -> None:
        """Write down what silences are known by ``messages``, none of which was stored before.

        No query for agents that go on as before.
        """
        heard = {agent_id: merged(spans) for agent_id, spans in _spans(messages).items()}
        news = {key: found for key, found in heard.items() if self._is_news(key, found)}
        for agent_id, found in news.items():
            # Of an agent that this writer does not know, what comes late may be out of order.
            to = self._heard_to.get(agent_id, now - MAX_GAP_S)
            for start, end in found:
                if start < to:
                    moments = _moment(start), _moment(end)
                    sql.fill_silences(cursor, agent_id, *moments, gap_s=MAX_GAP_S)
        sql.note_silences(cursor, self._between(news), gap_s=MAX_GAP_S)
        for agent_id, found in heard.items():
            self._heard_to[agent_id] = max(self._heard_to.get(agent_id, 0.0), found[-1][1])

    def heard_to(self, agent_id: int) -> datetime | None:
        """Return the newest reading of an agent that this writer has stored, or None."""
        at = self._heard_to.get(agent_id)
        return None if at is None else _moment(at)

    def _between(
        self, heard: Mapping[int, Sequence[Heard]]
    ) -> list[tuple[int, datetime | None, datetime]]:
        """Return what lies before each time that was heard.

        None: it begins where the agent was heard last, which only the database knows.
        """
        found: list[tuple[int, datetime | None, datetime]] = []
        for agent_id, spans in heard.items():
            since = self.heard_to(agent_id)
            for start, end in spans:
                found.append((agent_id, since, _moment(start)))
                since = _moment(end) if since is None else max(since, _moment(end))
        return found

    def _is_news(self, agent_id: int, found: Sequence[Heard]) -> bool:
        """Say whether an agent did not go on as before, as far as this writer knows."""
        to = self._heard_to.get(agent_id)
        return to is None or len(found) > 1 or abs(found[0][0] - to) > MAX_GAP_S


def merged(spans: Iterable[Heard]) -> list[Heard]:
    """Return ``spans`` in order, as one where they are no further apart than readings may be."""
    found: list[Heard] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] <= MAX_GAP_S:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _spans(messages: Iterable[Message]) -> dict[int, list[Heard]]:
    spans: dict[int, list[Heard]] = defaultdict(list)
    for message in messages:
        if message.packed.span is not None:
            spans[message.agent_id].append(message.packed.span)
    return spans


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
