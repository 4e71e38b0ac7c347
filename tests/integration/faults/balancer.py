"""A balancer of TCP connections, as it stands in front of several web hosts."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

__all__ = ["balancing"]

_PIECE_BYTES = 65_536

Address = tuple[str, int]


class _Balancer:
    """Gives each connection to the next host in turn that takes it."""

    def __init__(self, hosts: Sequence[Address]) -> None:
        self._hosts = hosts
        self._turns = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what both ends say, until one of them has gone."""
        other = await self._connected()
        if other is None:
            writer.close()
            return
        ways = [_pass_on(reader, other[1]), _pass_on(other[0], writer)]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        other[1].close()
        writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        first = next(self._turns)
        for place in range(len(self._hosts)):
            with suppress(OSError):
                return await asyncio.open_connection(
                    *self._hosts[(first + place) % len(self._hosts)]
                )
        return None


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()


@contextmanager
def balancing(hosts: Sequence[Address]) -> Iterator[str]:
    """Run a balancer in front of ``hosts`` until the end of the block; yield its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="balancer", daemon=True)
    thread.start()
    starting = asyncio.start_server(_Balancer(hosts).serve, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(10)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    own = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not own]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
