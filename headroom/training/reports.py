"""Reports of ranks and keepers to the agent of their machine, over a local socket.

It is never waited for.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from headroom.contracts import PLAIN, StoreState

__all__ = [
    "MOST_BYTES",
    "MOST_FLOP",
    "SOCKET",
    "Outlet",
    "RankReport",
    "Sender",
    "ShippingReport",
    "StoreReport",
    "address_of",
]

#: The variable that names the socket.
SOCKET = "HEADROOM_REPORTS"
#: The most that one report has.
MOST_BYTES = 16 * 1024
#: The most FLOPs that a step is taken to have.
MOST_FLOP = 1e30
#: As long as the address of a socket may be, bytes.
_MOST_ADDRESS = 100

_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]


_Word = Annotated[str, Meta(max_length=300, pattern=PLAIN)]


class RankReport(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """What one rank did in the last ``span_s``: ``steps`` of them, up to ``step``.

    ``sections`` has seconds by section. ``dropped`` counts reports that the socket did not take
    since the start: what they held is in the next one. ``nccl`` and ``image`` are the versions that
    the rank runs with; empty: not known. ``flops_per_step`` is what the model takes in a step, of
    all ranks together; 0: not told.
    """

    rank: _Count
    world: Annotated[int, Meta(ge=1, le=2**31)]
    step: _Count
    steps: _Count
    span_s: _Seconds
    samples: _Count = 0
    tokens: _Count = 0
    loss: float | None = None
    sections: dict[str, _Seconds] = {}
    memory_bytes: _Count = 0
    dropped: _Count = 0
    nccl: _Word = ""
    image: _Word = ""
    flops_per_step: Annotated[float, Meta(ge=0, le=MOST_FLOP)] = 0.0


class StoreReport(Struct, kw_only=True, frozen=True):
    """What the keeper of the job's checkpoints says of one store. No report of a rank has it."""

    store: StoreState


class ShippingReport(Struct, kw_only=True, frozen=True):
    """Which limits on sending the keeper of the job's checkpoints keeps to, by their ids.

    No other report has it. Without any it says that there is a keeper.
    """

    shipping: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=64)]


class Outlet(Protocol):
    """Where a rank's reports go. ``dropped`` counts those that were not taken."""

    dropped: int

    def send(self, report: RankReport) -> bool:
        """Take a report; return whether it was taken. Waits for nobody and never raises."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Sender:
    """A rank's or a keeper's end of the socket.

    The queue is the kernel's: what it does not take is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.dropped = 0

    def send(self, report: RankReport | StoreReport | ShippingReport) -> bool:
        """Send a report; return whether the agent has it. Waits for nobody and never raises."""
        body = msgspec.msgpack.encode(report)
        with contextlib.suppress(OSError), address_of(self._path) as address:
            self._socket.sendto(body, address)
            return True
        self.dropped += 1
        return False

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()


@contextlib.contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yield an address for ``path``, which may be longer than addresses of sockets are."""
    if len(os.fsencode(path)) <= _MOST_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
