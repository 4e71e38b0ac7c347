"""Which of the sources of one power agree, and which is off: pure.

A source agrees if a half of the others or more tell the same. One that differs from all others,
while these agree, is the odd one. Else nobody can say which is off: they are disputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Told(StrEnum):
    """Who tells a power."""

    ENERGY_COUNTER = "energy_counter"
    POWER_READING = "power_reading"
    NODE_METER = "node_meter"
    RACK_METER = "rack_meter"


class Standing(StrEnum):
    """How a source stands among the others of the same power."""

    AGREES = "agrees"
    ODD = "odd"
    DISPUTED = "disputed"
    ALONE = "alone"


#: Sources agree within so much of the greater one, or so many watts. GPUs' own readings are within
#: 5 % by what vendors promise; meters have their losses and their moments of averaging.
SHARE_OF_GPU, LEAST_OF_GPU_W = 0.05, 15.0
SHARE_OF_NODE, LEAST_OF_NODE_W = 0.10, 100.0


@dataclass(frozen=True, slots=True)
class Source:
    """The mean power that one source tells. ``is_floor``: of a part, so there may be more."""

    told_by: Told
    mean_w: float
    is_floor: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A source, and the share of the other ones that agree with it; None where there is none."""

    source: Source
    standing: Standing
    trust: float | None


def of_gpu(sources: Sequence[Source]) -> list[Judged]:
    """Compare the sources of one GPU."""
    return _judge(sources, SHARE_OF_GPU, LEAST_OF_GPU_W)


def of_node(sources: Sequence[Source]) -> list[Judged]:
    """Compare the sources of a whole node."""
    return _judge(sources, SHARE_OF_NODE, LEAST_OF_NODE_W)


def _judge(sources: Sequence[Source], share: float, least_w: float) -> list[Judged]:
    trusts = []
    for a in sources:
        agree = [_agree(a, b, share, least_w) for b in sources if b is not a]
        trusts.append(sum(agree) / len(agree) if agree else None)
    is_any = any(trust is not None and trust >= _ENOUGH for trust in trusts)
    return [
        Judged(source, _standing(trust, is_any=is_any), trust)
        for source, trust in zip(sources, trusts, strict=True)
    ]


_ENOUGH = 0.5


def _standing(trust: float | None, *, is_any: bool) -> Standing:
    if trust is None:
        return Standing.ALONE
    if trust >= _ENOUGH:
        return Standing.AGREES
    return Standing.ODD if is_any and trust == 0 else Standing.DISPUTED


def _agree(a: Source, b: Source, share: float, least_w: float) -> bool:
    apart_w = a.mean_w - b.mean_w
    near_w = max(share * max(a.mean_w, b.mean_w), least_w)
    if a.is_floor == b.is_floor:
        return abs(apart_w) <= near_w
    # What parts draw is no more than the whole does.
    return (apart_w if a.is_floor else -apart_w) <= near_w
