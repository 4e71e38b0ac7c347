"""Answers: results of WSGI, on their way to the client without a thread."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import structlog

from config.door.requests import Environ

if TYPE_CHECKING:
    from config.door.protocol import HTTPProtocol

__all__ = ["Answer", "Application", "Headers", "call"]

log = structlog.get_logger(__name__)

Application: TypeAlias = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Headers: TypeAlias = list[tuple[str, str]]

#: A stream is sent in one piece up to this, bytes.
_SHORT_BYTES = 64 * 1024
#: Pieces that a thread makes ahead of the event loop, and how long it waits for the loop, s.
_PIECES_AHEAD = 16
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body is in memory, in a file at ``path``, or in part yet to come."""

    status: int
    headers: Headers
    body: bytes = b""
    path: str = ""
    stream: Stream | None = None

    async def send(self, protocol: HTTPProtocol) -> None:
        """Send the answer through granian, which keeps it until the client has read it."""
        if self.stream is not None:
            await self.stream.send(protocol, self)
        elif self.path:
            protocol.response_file(self.status, self.headers, self.path)
        elif self.body:
            protocol.response_bytes(self.status, self.headers, self.body)
        else:
            protocol.response_empty(self.status, self.headers)

    def finish(self) -> None:
        """Make the rest of the body, on the thread that made the answer: it may own the data."""
        if self.stream is not None:
            self.stream.make()


class Stream:
    """The rest of a body, made piece by piece and sent as it is made.

    No client holds the thread that makes it: granian takes what is ready, however slowly it is
    read, and says when the client has gone.
    """

    def __init__(
        self,
        pieces: Iterator[bytes],
        close: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._pieces = pieces
        self._close = close
        self._loop = loop
        self._made: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_PIECES_AHEAD)
        self._is_wanted = True

    async def send(self, protocol: HTTPProtocol, answer: Answer) -> None:
        """Send ``answer``, whose body is the beginning of this stream."""
        try:
            transport = protocol.response_stream(answer.status, answer.headers)
            await transport.send_bytes(answer.body)
            while (piece := await self._made.get()) is not None:
                self._room.release()
                await transport.send_bytes(piece)
        finally:
            self._is_wanted = False
            self._room.release()

    def make(self) -> None:
        """Make all pieces, until nobody wants them any more."""
        try:
            for piece in self._pieces:
                if not self._room.acquire(timeout=_PATIENCE_S) or not self._is_wanted:
                    break
                self._loop.call_soon_threadsafe(self._made.put_nowait, piece)
        except Exception:
            log.exception("stream_failed")
        finally:
            self._close()
            self._loop.call_soon_threadsafe(self._made.put_nowait, None)


class _File:
    """``wsgi.file_wrapper``: the type that Django returns for a file."""

    def __init__(self, file: IO[bytes], block_size: int = 8192) -> None:
        self.file = file
        self._block_size = block_size

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.file.read(self._block_size), b"")

    def close(self) -> None:
        self.file.close()

    @property
    def path(self) -> str:
        """Where all of it is on the disk; empty where it is in memory, or a part of a file."""
        if not isinstance(self.file, io.BufferedReader) or self.file.tell():
            return ""
        return self.file.name if isinstance(self.file.name, str) else ""


def call(application: Application, loop: asyncio.AbstractEventLoop, environ: Environ) -> Answer:
    """Call a WSGI application. The rest of a streamed answer is sent on ``loop``."""
    begun: list[tuple[int, Headers]] = []

    def start_response(status: str, headers: Headers, _error: Any = None) -> None:
        begun.append((int(status[:3]), headers))

    environ["wsgi.file_wrapper"] = _File
    result = application(environ, start_response)
    close = getattr(result, "close", lambda: None)
    if isinstance(result, _File) and result.path:
        path = result.path
        close()
        return Answer(*begun[-1], path=path)
    if isinstance(result, _File) or getattr(result, "streaming", False):
        pieces = iter(result)
        first, is_all = _first(pieces)
        if not is_all:
            return Answer(*begun[-1], first, stream=Stream(pieces, close, loop))
    else:
        first = b"".join(result)
    close()
    return Answer(*begun[-1], first)


def _first(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """Return the beginning of a stream, and whether that is all of it."""
    first: list[bytes] = []
    size = 0
    for piece in pieces:
        first.append(piece)
        size += len(piece)
        if size > _SHORT_BYTES:
            return b"".join(first), False
    return b"".join(first), True
