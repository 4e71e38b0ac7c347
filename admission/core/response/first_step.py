"""When a job that moves makes its first step: what has to get there before, and its start. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headroom.jobs.words import lasting

__all__ = [
    "Basis",
    "Begin",
    "FirstStep",
    "Start",
    "Stated",
    "Stored",
    "Way",
    "first_step",
    "moves_to",
    "sentence",
    "way_to",
]


class Basis(StrEnum):
    """On what a number rests."""

    #: by who has read or sent the bytes, or has seen the starts
    MEASURED = "measured"
    #: in the job's specification
    STATED = "stated"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Stored:
    """The latest checkpoint of a run that counts at a site, and what is missing of the loop's.

    Without a checkpoint ``epoch``, ``step`` and ``size_bytes`` are None. ``lacking_bytes`` is None
    of the store at the loop itself, ``sent_bytes_per_s`` where nothing was sent there yet.
    """

    epoch: int | None = None
    step: int | None = None
    size_bytes: float | None = None
    lacking_bytes: float | None = None
    sent_bytes_per_s: float | None = None


class Begin(StrEnum):
    """From what a job that moves goes on."""

    #: a checkpoint that counts somewhere
    CHECKPOINT = "checkpoint"
    #: what it has saved, of which nobody has told
    UNSEEN = "unseen"
    #: nothing: none counts anywhere, or it writes none
    ANEW = "anew"


@dataclass(frozen=True)
class Stated:
    """What a job states of itself: bytes of its checkpoint and of its traffic; 0: it does not."""

    size_bytes: float = 0.0
    bytes_per_s: float = 0.0


@dataclass(frozen=True)
class Start:
    """How long starts took to their first step, s: the median of ``of`` starts.

    ``is_own``: of the job itself; else of its project.
    """

    s: float
    of: int
    is_own: bool


@dataclass(frozen=True)
class Way:
    """What has to get to a site before a job can go on there, and how fast it gets there.

    What is not known is None. ``step`` is that of the checkpoint from which it goes on.
    """

    site: str
    begin: Begin
    step: int | None
    left_bytes: float | None
    left_basis: Basis
    bytes_per_s: float | None
    rate_basis: Basis

    @property
    def send_s(self) -> float | None:
        """How long it is on its way, s; None: not known."""
        if self.left_bytes is None:
            return None
        if self.left_bytes <= 0.0:
            return 0.0
        return self.left_bytes / self.bytes_per_s if self.bytes_per_s else None


@dataclass(frozen=True)
class FirstStep:
    """When a job that moves makes its first step, counted from its start."""

    way: Way
    start: Start | None

    @property
    def in_s(self) -> float | None:
        """The whole time, s; None: some of it is not known."""
        send_s = self.way.send_s
        return None if send_s is None or self.start is None else send_s + self.start.s


def moves_to(here: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    """Return the sites of a placement at which a job that ran last at ``here`` was not.

    None for a job that has not run: it has nothing to take along.
    """
    known = set(here)
    return tuple(site for site in there if site not in known) if known else ()


def first_step(
    known: Mapping[str, Stored], sites: Iterable[str], start: Start | None, stated: Stated,
    *, saves: bool,
) -> FirstStep | None:  # fmt: skip
    """Return when a job makes its first step at ``sites``, which are new to it; None: at none.

    Of several sites the one that has to wait longest counts, and one of which that is not known
    before all others. ``saves``: the job writes checkpoints.
    """
    ways = [way_to(known, site, stated, saves=saves) for site in sites]
    if not ways:
        return None
    return FirstStep(max(ways, key=_waits_s), start)


def _waits_s(way: Way) -> float:
    return math.inf if way.send_s is None else way.send_s


def way_to(known: Mapping[str, Stored], site: str, stated: Stated, *, saves: bool) -> Way:
    """Return what has to get to ``site``. What was measured counts before what is stated."""
    there, latest = known.get(site), _latest(known.values())
    measured = there.sent_bytes_per_s if there is not None else None
    rate = measured or stated.bytes_per_s or None
    rate_basis = _basis(measured, stated.bytes_per_s)
    if latest is not None:
        left_bytes = _left_bytes(latest, there)
        return Way(
            site, Begin.CHECKPOINT, latest.step, left_bytes, Basis.MEASURED, rate, rate_basis
        )
    if known or not saves:
        return Way(site, Begin.ANEW, None, 0.0, Basis.MEASURED, rate, rate_basis)
    size_bytes = stated.size_bytes or None
    size_basis = _basis(None, stated.size_bytes)
    return Way(site, Begin.UNSEEN, None, size_bytes, size_basis, rate, rate_basis)


def _basis(measured: float | None, stated: float) -> Basis:
    if measured:
        return Basis.MEASURED
    return Basis.STATED if stated else Basis.UNKNOWN


def _latest(stored: Iterable[Stored]) -> Stored | None:
    found = [each for each in stored if each.step is not None]
    return max(found, key=_place, default=None)


def _place(stored: Stored) -> tuple[int, int]:
    return stored.epoch or 0, stored.step or 0


def _left_bytes(latest: Stored, there: Stored | None) -> float:
    """Return what of the latest checkpoint is not at a site, before it is packed."""
    size_bytes = latest.size_bytes or 0.0
    if there is None:
        return size_bytes
    if there.step is not None and _place(there) >= _place(latest):
        return 0.0
    return size_bytes if there.lacking_bytes is None else min(there.lacking_bytes, size_bytes)


# --- In words ------------------------------------------------------------------------------------


def sentence(found: FirstStep) -> str:
    """Return when a job makes its first step, and on what that rests, in words."""
    return f"{_when(found)}: {_on_the_way(found.way)}; {_start(found.start)}"


def _when(found: FirstStep) -> str:
    if found.in_s is not None:
        return f"first step about {lasting(found.in_s)} after its start"
    least_s = (found.way.send_s or 0.0) + (found.start.s if found.start else 0.0)
    if least_s > 0.0:
        return f"first step {lasting(least_s)} after its start at the earliest"
    return "when its first step is cannot be said"


def _on_the_way(way: Way) -> str:
    if way.begin is Begin.ANEW:
        return "no checkpoint of it is known to be whole anywhere, and it begins anew"
    if way.left_bytes is None:
        return f"nobody tells how much of its checkpoint has to get to {way.site}"
    if way.left_bytes <= 0.0:
        return f"its checkpoint of step {way.step:,} is whole at {way.site}"
    of = f"its checkpoint of step {way.step:,}" if way.step is not None else "a checkpoint"
    size = f"{way.left_bytes / 1e9:,.3g} GB of {of}"
    if way.left_basis is Basis.STATED:
        size += " (stated, not measured)"
    if way.send_s is None:
        return f"{size} have to get to {way.site}, and how fast they do is not known"
    said = "measured" if way.rate_basis is Basis.MEASURED else "stated, not measured"
    rate = f"{(way.bytes_per_s or 0.0) / 1e6:,.3g} MB/s, {said}"
    return f"{size} have to get to {way.site}, in {lasting(way.send_s)} at {rate}"


def _start(start: Start | None) -> str:
    if start is None:
        return "from start to first step nothing was measured"
    whose = "its own" if start.is_own else "its project's"
    starts = f"{whose} last {'start' if start.of == 1 else f'{start.of} starts'}"
    return f"{lasting(start.s)} from start to first step, measured at {starts}"
