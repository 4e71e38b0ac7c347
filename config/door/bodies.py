"""Reading bodies on the event loop: under a deadline, at a least rate, up to a limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from config.door.accounting import Pace, Share, TooMuch
from config.door.protocol import ProtocolClosed
from config.door.refusals import Cause, Refused

if TYPE_CHECKING:
    from config.door.protocol import HTTPProtocol

__all__ = ["read"]

#: Up to this a body is waited for as a whole, which is cheaper than piece by piece, bytes.
_SHORT_BYTES = 16 * 1024


async def read(protocol: HTTPProtocol, length: int, pace: Pace, share: Share) -> bytes:
    """Return the body of ``length`` bytes, which ``share`` holds.

    Raises :class:`Refused` where it comes too slowly or there is no room for it, and
    :class:`ProtocolClosed` where its sender leaves before its end.
    """
    try:
        if length <= _SHORT_BYTES:
            body = await _whole(protocol, length, pace, share)
        else:
            body = await _by_pieces(protocol, pace, share)
    except TimeoutError:
        raise Refused(Cause.BODY_TOO_SLOW) from None
    except TooMuch:
        raise Refused(Cause.MEMORY_FULL) from None
    if len(body) != length:
        raise ProtocolClosed
    return body


async def _whole(protocol: HTTPProtocol, length: int, pace: Pace, share: Share) -> bytes:
    share.grow(length)
    async with asyncio.timeout(pace.allowed_s(length)):
        return await protocol()


async def _by_pieces(protocol: HTTPProtocol, pace: Pace, share: Share) -> bytes:
    body = bytearray()
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(pace.allowed_s(0)) as limit:
        async for piece in protocol:
            share.grow(len(piece))
            body += piece
            limit.reschedule(began + pace.allowed_s(len(body)))
    return bytes(body)
