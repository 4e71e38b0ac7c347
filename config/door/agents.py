"""Agents by their tokens: from memory, and from the database only where they are unknown."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from django.db import close_old_connections

from accounts import tokens
from telemetry import directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from config.door.lanes import Lane
    from telemetry.directory import AgentScope

__all__ = ["Agents"]

#: All unknown tokens together may cost one look at the database in this time, s.
LOOK_AGAIN_AFTER_S = 0.1


class Agents:
    """Agents by their tokens. All unknown tokens wait for one query together."""

    def __init__(self, lane: Lane[Callable[[], None], None]) -> None:
        self._lane = lane
        self._look: asyncio.Task[None] | None = None
        self._looked_at = -math.inf

    async def find(self, token: str) -> AgentScope | None:
        """Return the scope of the agent with ``token``, or None.

        Raises what the look at the database raises, and what its lane does.
        """
        if not token.startswith(tokens.AGENT_PREFIX):
            return None
        found = directory.known_scope_of(token)
        if found is None and self._look is not None:
            # It may have begun before the agent was enrolled.
            await asyncio.shield(self._look)
            found = directory.known_scope_of(token)
        if found is None:
            await asyncio.shield(self._next_look())
            found = directory.known_scope_of(token)
        return found

    def _next_look(self) -> asyncio.Task[None]:
        if self._look is None:
            self._look = asyncio.create_task(self._look_again())
        return self._look

    async def _look_again(self) -> None:
        try:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, self._looked_at + LOOK_AGAIN_AFTER_S - now))
            await self._lane.do(_look_again)
        finally:
            self._look = None
            self._looked_at = asyncio.get_running_loop().time()


def _look_again() -> None:
    close_old_connections()
    directory.look_again()
