"""Where the time of GPUs that are held went: each microsecond of each has exactly one cause. Pure.

Some causes take whole spans: a GPU of a job that stands still does nothing else. Others take a
share of what is left, in a stated order, as a throttled GPU is slower and goes on. All is counted
in whole microseconds, so that the causes add up to the time that was held, exactly.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headroom.contracts import ThrottleCause
from physics.cover import greatest_cover

__all__ = [
    "LEVERS", "PPM", "Axis", "Cause", "GpuSpans", "Ints", "Shares", "Whole", "account", "accounts",
    "throttled",
]  # fmt: skip

Ints = NDArray[np.int64]

#: Shares are whole parts of a million.
PPM = 1_000_000


class Cause(enum.StrEnum):
    """What a GPU's time went to, besides throttling. Whole spans first, in order of precedence.

    Where spans overlap, the later one is the cause.
    """

    #: it was held, and nothing tells what the job did
    UNKNOWN = "unknown"
    #: it was held, no loop tells of steps, and its readings show that it did nothing
    IDLE = "idle"
    #: it was held, no loop tells of steps, and its readings show that it worked
    BUSY = "busy"
    #: steps that the job had not made before
    PRODUCTIVE = "productive"
    #: steps that an earlier attempt had made, and lost
    REPEATED = "repeated"
    #: until the first steps of a phase
    STARTING = "starting"
    #: until the first steps after an attempt that ended
    RESTARTING = "restarting"
    #: the job stood still, since we told it to
    PAUSED = "paused"
    #: of productive time: saves, evaluation and preparing, as the loop tells them together
    OUTSIDE_STEPS = "outside_steps"
    #: of the rest: steps waited for their data
    DATA_WAIT = "data_wait"
    #: of the rest: steps waited for the gradients of other ranks, stragglers among them
    SYNCHRONIZATION = "synchronization"
    #: of the rest: it was throttled at a power limit while a cap of ours was in force
    CAPPED = "capped"
    #: of busy time: its gang drew less than where it works: it loads, saves, evaluates or waits
    LOW_DRAW = "low_draw"


#: Causes of whole spans, by their place in :class:`Cause`.
_WHOLE = (
    Cause.UNKNOWN,
    Cause.IDLE,
    Cause.BUSY,
    Cause.PRODUCTIVE,
    Cause.REPEATED,
    Cause.STARTING,
    Cause.RESTARTING,
    Cause.PAUSED,
)
#: Of these shares are taken.
_SHARED = (Cause.UNKNOWN, Cause.BUSY, Cause.PRODUCTIVE)
#: Causes that take shares of what a loop tells, in the order in which they take them.
_TOLD = (Cause.OUTSIDE_STEPS, Cause.DATA_WAIT, Cause.SYNCHRONIZATION)
#: Causes that take shares before throttling does, by the cause of which they take them.
_SHARES_OF: Mapping[Cause, tuple[Cause, ...]] = {
    Cause.PRODUCTIVE: _TOLD,
    Cause.BUSY: (Cause.LOW_DRAW,),
}
#: Of two causes of throttling that cost the same, the one that says more comes later: a slowdown by
#: hardware is also what heat and power brake show.
_THROTTLES = (
    ThrottleCause.DISPLAY_CLOCK,
    ThrottleCause.SYNC_BOOST,
    ThrottleCause.HW_SLOWDOWN,
    ThrottleCause.SW_POWER_CAP,
    ThrottleCause.SW_THERMAL,
    ThrottleCause.HW_THERMAL,
    ThrottleCause.HW_POWER_BRAKE,
)


def throttled(cause: ThrottleCause, *, expected: bool) -> str:
    """Return the name of throttling by ``cause``, such as ``throttled_sw_power_cap_expected``."""
    return f"throttled_{cause.token}_{'expected' if expected else 'unexpected'}"


_KINDS = [(cause, expected) for cause in _THROTTLES for expected in (False, True)]
_COOLING = "look at its cooling: inlet temperature, fans, coolant; have jobs avoid the place"
_BY_THROTTLE = {
    ThrottleCause.SW_POWER_CAP: "raise its power limit, or place the job where power is left",
    ThrottleCause.SW_THERMAL: _COOLING,
    ThrottleCause.HW_THERMAL: _COOLING,
    ThrottleCause.HW_SLOWDOWN: "look for the cause on the node: power supply, cooling, hardware",
    ThrottleCause.HW_POWER_BRAKE: "look at the power supplies and the feed of the node",
    ThrottleCause.SYNC_BOOST: "look at the slowest GPU of its boost group",
    ThrottleCause.DISPLAY_CLOCK: "detach displays from the GPU",
}
#: What brings the time of each cause back. All names that an account may have are here.
LEVERS: Mapping[str, str] = {
    Cause.PRODUCTIVE: "",
    Cause.UNKNOWN: "connect the training loop, so that it tells of its steps",
    Cause.IDLE: "end the job, or find what it waits for: its GPUs do nothing",
    Cause.BUSY: "connect the training loop: it worked, and nothing tells what came of it",
    Cause.REPEATED: "save more often, at the interval that the failure rate asks for",
    Cause.STARTING: "stage image and inputs beforehand, and fork ranks from a warm parent",
    Cause.RESTARTING: "start ranks again in place, and restore from a near checkpoint",
    Cause.PAUSED: "find the limit that pauses the job; lower its batch or its power instead",
    Cause.OUTSIDE_STEPS: "save beside the training, and evaluate less often or elsewhere",
    Cause.DATA_WAIT: "read ahead with more workers, or from faster storage",
    Cause.SYNCHRONIZATION: "look at the slowest rank, and at the links between the nodes",
    Cause.CAPPED: "raise or lift the cap of ours that holds it; see what budget asks for it",
    **{throttled(cause, expected=expected): _BY_THROTTLE[cause] for cause, expected in _KINDS},
    Cause.LOW_DRAW: "connect the training loop: it loads, saves, evaluates or waits, and only the "
    "loop tells which",
}
_THROTTLED_NAMES = [throttled(cause, expected=expected) for cause, expected in _KINDS]
#: Codes of throttling, by cause and whether it is expected, in order of precedence.
_THROTTLE_CODE = {name: code for code, name in enumerate(_THROTTLED_NAMES)}
_AT_POWER_CAP = [
    code for code, (cause, _) in enumerate(_KINDS) if cause is ThrottleCause.SW_POWER_CAP
]
#: The place of each cause in a row of :func:`accounts`.
_PLACE = {name: place for place, name in enumerate(LEVERS)}
#: Places of codes of throttling; the last is that of what a cap of ours took.
_THROTTLE_PLACE = np.array([*(_PLACE[name] for name in _THROTTLED_NAMES), _PLACE[Cause.CAPPED]])


@dataclass(frozen=True, eq=False, kw_only=True)
class GpuSpans:
    """Spans of time of GPUs, by numbers of GPUs from 0 on. Arrays of one length, in any order."""

    gpu: Ints
    start_us: Ints
    end_us: Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Whole(GpuSpans):
    """Spans in which one of the causes that take whole spans holds."""

    cause: Cause


@dataclass(frozen=True, eq=False, kw_only=True)
class Shares(GpuSpans):
    """Spans in which a cause takes a share of what is left.

    ``cause`` is one that the loop tells, :attr:`Cause.LOW_DRAW`, or a name by :func:`throttled`.
    ``ppm``: 0 to 1,000,000.
    """

    cause: str
    ppm: Ints


def account(
    held: GpuSpans,
    spans: Sequence[Whole],
    shares: Sequence[Shares],
    caps: Sequence[GpuSpans] = (),
    *,
    start_us: int,
    end_us: int,
) -> dict[str, int]:
    """Return :func:`accounts` of all GPUs together, µs by cause."""
    gpus = int(held.gpu.max(initial=-1)) + 1
    found = accounts(held, spans, shares, caps, gpus=gpus, start_us=start_us, end_us=end_us)
    return dict(zip(LEVERS, found.sum(axis=0).tolist(), strict=True))


def accounts(
    held: GpuSpans,
    spans: Sequence[Whole],
    shares: Sequence[Shares],
    caps: Sequence[GpuSpans] = (),
    *,
    gpus: int,
    start_us: int,
    end_us: int,
) -> Ints:
    """Return what the time of GPUs from ``start_us`` up to ``end_us`` went to, µs.

    An array of ``gpus`` by all of :data:`LEVERS`, in their order: each row adds up to the time that
    its GPU was held, exactly. Time that is held and that no span speaks of is unknown. Shares take
    from productive and, as far as they are throttling, from busy and unknown time; what a loop
    tells comes first, or, of busy time, low draw, then throttling takes a share of the rest. Of
    throttling at the same time,
    the one that costs most counts alone; at a power limit it is ``capped`` within ``caps``. Raises
    :class:`ValueError` where the end is not after the start, or a share is none.
    """
    if end_us <= start_us:
        raise ValueError("end_us: not after start_us")
    if any(((each.ppm < 0) | (each.ppm > PPM)).any() for each in shares):
        raise ValueError("ppm: not between 0 and 1,000,000")
    axis = Axis.over([held, *spans, *shares, *caps], start_us, end_us)
    base = axis.greatest([held, *spans], [0, *(_WHOLE.index(each.cause) for each in spans)])
    # What no one held is not of the account, whatever else is said of it.
    base = np.where(axis.greatest([held], [0]) >= 0, base, -1)
    found = np.zeros((gpus, len(LEVERS)), dtype=np.int64)
    gpu = axis.gpu
    for code, cause in enumerate(_WHOLE):
        of = np.flatnonzero(base == code)
        left_us = axis.length_us[of]
        for place, taken_us in _taken(axis, of, shares, caps, cause):
            np.add.at(found.reshape(-1), gpu[of] * len(LEVERS) + place, taken_us)
            left_us = left_us - taken_us
        np.add.at(found.reshape(-1), gpu[of] * len(LEVERS) + _PLACE[cause], left_us)
    return found


def _taken(
    axis: Axis,
    of: NDArray[np.intp],
    shares: Sequence[Shares],
    caps: Sequence[GpuSpans],
    cause: Cause,
) -> Iterator[tuple[int | Ints, Ints]]:
    """Yield what shares take of the segments ``of``, µs, and the places of their causes."""
    left_us = axis.length_us[of]
    if cause not in _SHARED or not of.size:
        return
    for each in _SHARES_OF.get(cause, ()):
        own = [one for one in shares if one.cause == each]
        ppm = np.maximum(axis.greatest(own, [one.ppm for one in own])[of], 0)
        taken_us = _part(left_us, ppm)
        left_us = left_us - taken_us
        yield _PLACE[each], taken_us
    # One number for share and cause, so that the greatest is the cause that counts.
    kinds = len(_THROTTLED_NAMES)
    own = [each for each in shares if each.cause in _THROTTLE_CODE]
    values = [each.ppm * kinds + _THROTTLE_CODE[each.cause] for each in own]
    ppm, code = np.divmod(np.maximum(axis.greatest(own, values)[of], 0), kinds)
    is_capped = (axis.greatest(caps, [0] * len(caps))[of] >= 0) & np.isin(code, _AT_POWER_CAP)
    yield _THROTTLE_PLACE[np.where(is_capped, kinds, code)], _part(left_us, ppm)


def _part(length_us: Ints, ppm: Ints) -> Ints:
    """Return a share of each length, rounded down. In two parts: no product overflows."""
    whole, rest = np.divmod(length_us, PPM)
    part: Ints = whole * ppm + rest * ppm // PPM
    return part


@dataclass(frozen=True, eq=False)
class Axis:
    """All GPUs one after the other on one axis of time, cut wherever anything begins or ends."""

    edges_us: Ints
    length_us: Ints
    start_us: int
    end_us: int

    @classmethod
    def over(cls, all_: Sequence[GpuSpans], start_us: int, end_us: int) -> Axis:
        """Return the axis of GPUs from ``start_us`` to ``end_us``, cut by all of the spans."""
        bare = cls(np.empty(0, np.int64), np.empty(0, np.int64), start_us, end_us)
        edges = np.unique(np.concatenate([each for one in all_ for each in bare._placed(one)]))
        return cls(edges, np.diff(edges), start_us, end_us)

    @property
    def gpu(self) -> Ints:
        """The GPU of each segment. One that reaches into another GPU is covered by nothing."""
        return self.edges_us[:-1] // (self.end_us - self.start_us)

    @property
    def from_us(self) -> Ints:
        """The time at which each segment begins."""
        return self.edges_us[:-1] % (self.end_us - self.start_us) + self.start_us

    def _placed(self, one: GpuSpans) -> tuple[Ints, Ints]:
        """Return the ends of spans on the axis, cut to the time that is looked at."""
        offset = one.gpu * (self.end_us - self.start_us) - self.start_us
        return (
            np.clip(one.start_us, self.start_us, self.end_us) + offset,
            np.clip(one.end_us, self.start_us, self.end_us) + offset,
        )

    def greatest(self, all_: Sequence[GpuSpans], values: Sequence[int | Ints]) -> Ints:
        """Return by segment the greatest of the values of what covers it, -1 where nothing does."""
        placed = [self._placed(each) for each in all_]
        if not placed:
            return np.full(self.length_us.size, -1, dtype=np.int64)
        left = np.searchsorted(self.edges_us, np.concatenate([each for each, _ in placed]))
        right = np.searchsorted(self.edges_us, np.concatenate([each for _, each in placed]))
        both = zip(all_, values, strict=True)
        value = np.concatenate([np.broadcast_to(given, each.gpu.shape) for each, given in both])
        return greatest_cover(left, right, value.astype(np.int64), self.length_us.size)
