"""The controller of running load on the server: what it holds, and the caps that it sets.

:func:`look` is what it makes of a moment: whoever asks gets what the cycle gets. :func:`act`, which
the cycle alone calls, has agents set the caps, hands over what has got its room, and remembers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
import numpy as np
from django.db.models import Q

from admission.core import holding as core
from admission.core.allocation.allocations import Allocations
from admission.core.controlling import AT_REST, Excess, LastHeld, at_rest
from admission.core.directives.standing import Standing, keep_still
from admission.core.holding import ROOM_WITHIN_S, Holding, Remembered
from admission.core.policy import AdmissionPolicy
from admission.cycle import reconciliation
from admission.cycle.dispatch import dispatch
from admission.directives import store
from admission.jobs.models import Attempt
from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from headroom.contracts import LimitState
from policies.caps import askers, orders
from policies.controller.control import Memory, Tuning
from policies.controller.heat import Warmth
from policies.controller.pausing import Paused
from policies.controller.together import Together
from policies.headroom.columns import Bools, Floats, Ints
from policies.headroom.evaluate import Headroom
from telemetry import stream
from telemetry.limits.models import LimitReport

__all__ = [
    "COMES_TO_REST_S",
    "ROOM_WITHIN",
    "TUNING",
    "act",
    "forget",
    "let_go",
    "look",
    "remembered",
]

TUNING = Tuning()
#: What is told to stand still is heard of, and has come to rest, within so many s.
COMES_TO_REST_S = 15.0
#: What was admitted waits so long for its room, and else goes back to the queue.
ROOM_WITHIN = timedelta(seconds=ROOM_WITHIN_S)
NO_ROOM = "no room could be made for it: what runs here did not give way in time"
#: A GPU whose agent could not set a cap is not counted on for so long.
_REFUSED_FOR = timedelta(minutes=10)
_REFUSED_KNOWN_S = 5.0
#: On one node, by the contract with agents.
_MOST_GPUS = 256
#: Drivers may round a limit to whole units, W.
_TOLERANCE_W = 1.5

_KEY = "controller:memory"
#: Older than this a memory says less of what units draw than what was said of them, s.
_KEPT_S = 120


def look(
    headroom: Headroom,
    held: Allocations,
    policy: AdmissionPolicy,
    ready: Bools,
    memory: Remembered,
    standing: Standing,
) -> Holding | None:
    """Return what the controller makes of a moment; None: it is off, or no agent acts on caps.

    ``ready`` says of each node whether its machine takes jobs; ``standing``, who agreed to stand
    still. One query each five seconds.
    """
    if not policy.controls:
        return None
    fleet = headroom.fleet
    asks = askers.nodes_that_ask(fleet, headroom.at)[fleet.gpus.node]
    may_cap = headroom.summary.gpus.fresh & asks
    if not may_cap.any():
        return None
    may_cap &= ~_refusing(fleet, headroom.at)
    told = {each.id for each in held.attempts if each.started_at and not each.is_running}
    return core.look(
        headroom,
        held,
        may_cap=may_cap,
        ready=ready,
        unmanaged=policy.unmanaged,
        resting=at_rest(headroom, held, told),
        memory=memory,
        standing=standing,
        tuning=TUNING,
    )


_refused: Cache[Ints] = Cache(_REFUSED_KNOWN_S)


def _refusing(fleet: FleetArrays, now: float) -> Bools:
    """Say of each GPU whether its agent could not set a cap of ours of late."""

    def read() -> Ints:
        since = datetime.fromtimestamp(now, UTC) - _REFUSED_FOR
        rows = LimitReport.objects.filter(
            limit__startswith=f"{orders.OWNER}-",
            state__in=(LimitState.REFUSED, LimitState.FAILED),
            received_at__gt=since,
        ).values_list("node_id", "gpu_index")
        return np.array([(node, -1 if gpu is None else gpu) for node, gpu in rows], dtype=np.int64)

    found = _refused.get(read).reshape(-1, 2)
    node_id, index = fleet.nodes.ids[fleet.gpus.node], fleet.gpus.index
    whole = found[found[:, 1] < 0, 0]
    each = _MOST_GPUS * found[:, 0] + found[:, 1]
    return np.isin(node_id, whole) | np.isin(_MOST_GPUS * node_id + index, each)


# --- What is remembered from round to round -------------------------------------------------------


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    generation: int
    at: float
    ids: bytes
    since: bytes
    full_w: bytes
    cap_w: bytes
    other_w: bytes
    held_share: float
    of_units: bytes
    excess_at: tuple[float, ...]
    excess_w: tuple[bytes, ...]
    host_share: float
    warm_w: bytes = b""
    ambient_c: bytes = b""
    fresh: bytes = b""
    limit_w: bytes = b""
    below_for_s: bytes = b""
    own_limit_w: bytes = b""
    #: what stands still, or is to go on: attempt, which of both, its cap, what it saves by budget
    paused: tuple[tuple[int, bool, float, bytes], ...] = ()
    #: what units drew together: until when, the most, and what they would draw one by one
    together: tuple[float, bytes, bytes] | None = None
    #: for how long no attempt has held each GPU, s
    free_for_s: bytes = b""
    #: the cap that the agent of each GPU was told last, W
    ordered_w: bytes = b""
    #: what jobs drew that stood still last, as a share of the way from rest to the rating
    rest_share: float = AT_REST


_pack = msgspec.msgpack.Encoder().encode
_kept = msgspec.msgpack.Decoder(_Kept)


def _remember(holding: Holding) -> None:
    fleet, left = holding.headroom.fleet, holding.remembered
    memory, excess, warmth = left.units, left.excess, left.warmth
    paused, together = left.paused, left.together
    ids = list(memory.since)

    def column(values: dict[int, float]) -> bytes:
        return np.array([values[each] for each in ids], dtype="<f8").tobytes()

    kept = _Kept(
        generation=fleet.generation,
        at=memory.at,
        ids=np.array(ids, dtype="<i8").tobytes(),
        since=column(dict(memory.since)),
        full_w=column(dict(memory.full_w)),
        cap_w=column(dict(memory.cap_w)),
        other_w=_bytes(memory.other_w),
        held_share=memory.held_share,
        of_units=np.packbits(memory.of_units).tobytes(),
        excess_at=excess.times,
        excess_w=tuple(_narrow(watts) for watts in excess.watts),
        host_share=excess.host_share,
        warm_w=_narrow(warmth.drawn_w),
        ambient_c=_narrow(warmth.ambient_c),
        fresh=np.packbits(left.fresh).tobytes(),
        limit_w=_narrow(memory.limit_w),
        below_for_s=_narrow(memory.below_for_s),
        own_limit_w=_narrow(memory.own_limit_w),
        paused=tuple(
            (each, each in paused, paused.cap_w[each], _bytes(watts))
            for each, watts in {**paused.saves_w, **paused.goes_w}.items()
        ),
        together=(together.at, _bytes(together.most_w), _bytes(together.apart_w)),
        free_for_s=_narrow(left.last_held.for_s),
        ordered_w=_narrow(left.ordered_w),
        rest_share=left.rest_share,
    )
    stream.connection().set(_KEY, _pack(kept), ex=_KEPT_S)


def remembered(fleet: FleetArrays, now: float) -> Remembered:
    """Return what the last round left; lost, the controller begins with what was said of units.

    Caps that it set last go on in their own lease, so that they are known as its own.
    """
    data = cast(bytes | None, stream.connection().get(_KEY))
    if data is None:
        return Remembered(ordered_w=orders.by_gpu(orders.current(now), fleet))
    kept = _kept.decode(data)
    ids = np.frombuffer(kept.ids, dtype="<i8").tolist()

    def by_id(values: bytes) -> dict[int, float]:
        return dict(zip(ids, _floats(values).tolist(), strict=True))

    is_same = kept.generation == fleet.generation
    units = Memory(
        at=kept.at,
        since=by_id(kept.since),
        full_w=by_id(kept.full_w),
        cap_w=by_id(kept.cap_w),
        other_w=_floats(kept.other_w) if is_same else np.zeros(0),
        held_share=kept.held_share,
        of_units=_flags(kept.of_units, len(fleet.gpus) if is_same else 0),
        limit_w=_widened(kept.limit_w) if is_same else np.zeros(0),
        below_for_s=_widened(kept.below_for_s) if is_same else np.zeros(0),
        own_limit_w=_widened(kept.own_limit_w) if is_same else np.zeros(0),
    )
    if not is_same:
        return Remembered(units, ordered_w=orders.by_gpu(orders.current(now), fleet))
    return Remembered(
        units,
        Excess(kept.excess_at, tuple(map(_widened, kept.excess_w)), kept.host_share),
        Warmth(kept.at, _widened(kept.warm_w), _widened(kept.ambient_c)),
        _flags(kept.fresh, len(fleet.gpus) if kept.fresh else 0),
        Paused(
            {each: _floats(saves_w) for each, is_still, _, saves_w in kept.paused if is_still},
            {each: _floats(saves_w) for each, is_still, _, saves_w in kept.paused if not is_still},
            {each: cap_w for each, _, cap_w, _ in kept.paused},
        ),
        _together(kept),
        LastHeld(kept.at, _widened(kept.free_for_s)),
        _widened(kept.ordered_w),
        kept.rest_share,
    )


def _flags(data: bytes, count: int) -> Bools:
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count).astype(bool)


def _together(kept: _Kept) -> Together:
    if kept.together is None:
        return Together()
    at, most_w, apart_w = kept.together
    return Together(at, _floats(most_w), _floats(apart_w))


def _bytes(values: Floats) -> bytes:
    return values.astype("<f8").tobytes()


def _floats(data: bytes) -> Floats:
    return np.frombuffer(data, dtype="<f8")


def _narrow(values: Floats) -> bytes:
    return values.astype("<f4").tobytes()


def _widened(data: bytes) -> Floats:
    return np.frombuffer(data, dtype="<f4").astype(np.float64)


# --- What is done ---------------------------------------------------------------------------------


def act(holding: Holding) -> int:
    """Have agents set the caps, pause what is to stand still, hand over what has got its room.

    And remember. Return how many attempts still wait for room. Only the cycle does so, under its
    lock.
    """
    fleet, now = holding.headroom.fleet, holding.headroom.at
    gpu, holder, cap_w = holding.caps()
    orders.keep(fleet.gpus.ids[gpu], holder, cap_w, now)
    if holding.paused.saves_w or holding.before.saves_w:
        keep_still(
            store.book(), tuple(holding.paused.saves_w), now=datetime.fromtimestamp(now, UTC),
            reasons=holding.standing.reasons,
        )  # fmt: skip
    _remember(holding)
    return _hand_over(holding)


def let_go(now: float) -> None:
    """Take all caps back, where the controller is off. One query."""
    nothing = np.zeros(0, dtype=np.int64)
    if len(orders.current(now)):
        orders.keep(nothing, nothing, np.zeros(0), now)
    waiting = _waiting()
    if waiting:
        reconciliation.withdraw(waiting, "the controller that made room for it is off", now)


def _waiting() -> list[Attempt]:
    # What was told to end is closed by reconciliation.
    return list(Attempt.objects.open().filter(room_by__isnull=False, outcome=""))


def _hand_over(holding: Holding) -> int:
    """Dispatch what waits for room and has it, and withdraw what waited for too long."""
    waiting = _waiting()
    if not waiting:
        return 0
    now, has_room = holding.headroom.at, _with_room(holding)
    ready = [each for each in waiting if each.pk in has_room]
    still = Q(pk__in=[each.pk for each in ready])
    Attempt.objects.open().filter(still, outcome="").update(room_by=None)
    dispatch(ready, now)
    at = datetime.fromtimestamp(now, UTC)
    late = [each for each in waiting if each.pk not in has_room and _is_late(each, at)]
    reconciliation.withdraw(late, NO_ROOM, now)
    return len(waiting) - len(ready) - len(late)


def _is_late(attempt: Attempt, at: datetime) -> bool:
    return attempt.room_by is not None and attempt.room_by <= at


def _with_room(holding: Holding) -> set[int]:
    """Return the attempts whose room is made, and whose GPUs report their first caps."""
    units, found = holding.units, holding.found
    limit_w = holding.headroom.summary.gpus.limit_w[units.gpu]
    above = limit_w > found.cap_w[units.unit] + _TOLERANCE_W
    shown = np.bincount(units.unit, above, len(units)) == 0
    return set(units.id[found.may_start & shown].tolist())


def forget() -> None:
    """Forget all that this process knows, as one that has just begun."""
    _refused.invalidate()
    askers.forget()
    orders.forget()
