"""The status of the controller, as its last round left it, for pages and API.

It may be lost at any time: the next round writes it anew.
"""

from __future__ import annotations

from typing import cast

import msgspec

from telemetry import stream

__all__ = ["Heated", "Held", "Status", "publish", "read"]

_KEY = "controller:status"
#: A status that nobody has renewed for so long says nothing any more, s.
_KEPT_S = 30


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One budget below which GPUs are capped, or that is exceeded.

    ``level`` is how far all below it give way: 1 where nobody is slowed, 0 where all are as slow as
    may be; ``gives_way`` says who: ``agreed``, ``unmanaged`` too, or ``all``. ``short_w`` is what
    it lacks with all caps at their lowest.
    """

    scope: str
    is_failover: bool
    level: float
    gpus: int
    taken_w: float
    over_w: float
    short_w: float
    gives_way: str = ""
    #: GPUs below it on which no agent sets caps
    deaf: int = 0
    #: GPUs below it with load of no known owner that the policy leaves alone, and what they draw
    left_alone: int = 0
    left_alone_w: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.over_w > 0.0

    @property
    def is_unkept(self) -> bool:
        """Whether it is exceeded, and caps alone cannot keep it."""
        return self.is_over and self.short_w > 0.0


class Heated(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that gets too hot, and the GPUs that are capped for it: those of its job, or of its
    node where nobody knows whose load that is.

    ``racks`` are those of all of them. ``gpus`` and ``taken_w`` count all of them, too.
    """

    gpu: str
    temp_c: float
    slowdown_c: float
    cap_w: float
    gpus: int
    taken_w: float
    racks: tuple[str, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller did last, at ``at`` (Unix s).

    ``acting`` and ``gpus`` count GPUs on which caps can be set, and all. ``capped`` are those that
    are held below what they would draw, ``taken_w`` is what they do not draw for it. ``waiting``
    counts attempts for which room is being made, ``paused`` those that stand still for it.
    ``starts_low``: jobs begin under their lowest cap.
    """

    at: float
    gpus: int
    acting: int
    capped: int
    taken_w: float
    units: int
    waiting: int
    starts_low: bool
    unmanaged_capped: bool
    budgets: tuple[Held, ...] = ()
    heated: tuple[Heated, ...] = ()
    paused: int = 0


_pack = msgspec.msgpack.Encoder().encode
_status = msgspec.msgpack.Decoder(Status)


def publish(status: Status | None) -> None:
    """Publish a status; None: the controller does nothing."""
    client = stream.connection()
    if status is None:
        client.delete(_KEY)
    else:
        client.set(_KEY, _pack(status), ex=_KEPT_S)


def read() -> Status | None:
    """Return the last status; None: no controller has done a round for half a minute."""
    data = cast(bytes | None, stream.connection().get(_KEY))
    return None if data is None else _status.decode(data)
