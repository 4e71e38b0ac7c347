"""The outcome of a restriction: from reports and readings to numbers, and to a sentence. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.restrictions.kinds import KINDS, ON_HOSTS, ON_WHAT_RUNS, RestrictionKind
from policies.rules.words import spoken

__all__ = [
    "Applied",
    "Beside",
    "Effect",
    "Means",
    "Outcome",
    "Readings",
    "effect_of",
    "outcome",
    "sentence",
    "without_effect",
]

Floats: TypeAlias = NDArray[np.float64]

#: A GPU over its cap by no more than this keeps to it: caps are met on average, W or MHz are round.
_OVER_SHARE = 0.02
_OVER = {RestrictionKind.POWER_CAP_W: 2.0, RestrictionKind.CLOCK_CAP_MHZ: 15.0}
#: With more GPUs than this share over it, a cap is not kept to.
_MAY_EXCEED = 0.05


class Outcome(enum.StrEnum):
    """The outcome of a restriction."""

    #: All GPUs have it, and keep to it.
    HOLDS = "holds"
    #: Some GPUs do not have it.
    PARTLY = "partly"
    #: No GPU has it.
    NOT_APPLIED = "not_applied"
    #: GPUs have it and are over it.
    EXCEEDED = "exceeded"
    #: It is none that GPUs have. What they did meanwhile is shown.
    MEASURED = "measured"
    #: It ended, or readings are missing, before anything could be seen.
    UNMEASURED = "unmeasured"


@dataclass(frozen=True)
class Applied:
    """The reports of agents on a limit, counted in GPUs."""

    expected: int
    applied: int = 0
    refused: int = 0
    failed: int = 0
    #: until nearly all of them had it
    seconds: float | None = None
    #: what was said of those that do not have it
    error: str = ""

    @property
    def silent(self) -> int:
        return max(self.expected - self.applied - self.refused - self.failed, 0)

    @property
    def is_complete(self) -> bool:
        return self.silent == 0


@dataclass(frozen=True, eq=False)
class Means:
    """Means of GPUs over a span, a row each. NaN: no reading."""

    power_w: Floats
    temp_c: Floats
    sm_mhz: Floats


@dataclass(frozen=True)
class Beside:
    """Another restriction whose effect falls into the same span, on some of the same GPUs."""

    id: int
    kind: RestrictionKind
    value: float | None
    #: which of the GPUs that were read it is on
    gpus: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of the same GPUs before and after. Each stands for ``weight`` GPUs of the scope."""

    before: Means
    after: Means
    weight: float = 1.0


@dataclass(frozen=True)
class Effect:
    """The change of GPUs ``after_s`` after a restriction came into force. None: not known."""

    gpus: int
    measured: int
    after_s: float
    power_before_w: float | None = None
    power_after_w: float | None = None
    temp_change_c: float | None = None
    clock_change_mhz: float | None = None
    #: of the measured GPUs, those above the cap
    over: int = 0
    #: of the measured GPUs, those whose change is that of a stricter one, and which that are
    others: int = 0
    stricter: tuple[int, ...] = ()
    #: restrictions of another kind on the same GPUs: whose the change is cannot be told
    together: tuple[int, ...] = ()

    @property
    def fell_w(self) -> float | None:
        if self.power_before_w is None or self.power_after_w is None:
            return None
        return self.power_before_w - self.power_after_w

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON keeps it."""
        return {**asdict(self), "fell_w": self.fell_w}


def effect_of(
    readings: Readings,
    kind: RestrictionKind,
    value: float | None,
    *,
    gpus: int,
    after_s: float,
    number: int = 0,
    beside: Sequence[Beside] = (),
) -> Effect:
    """Compare the GPUs that were read both before and after. ``value``: the cap, if it is one.

    ``beside`` are others in the same span. Of several of one kind on a GPU the strictest has all of
    its change, of equal ones that of the lowest ``number``; of several kinds nobody can tell.
    """
    before, after, weight = readings.before, readings.after, readings.weight
    both = ~np.isnan(before.power_w) & ~np.isnan(after.power_w)
    if not both.any():
        return Effect(gpus, 0, after_s)
    stricter = [
        each
        for each in beside
        if each.kind is kind and (_strict(each.value), each.id) < (_strict(value), number)
    ]
    own = both.copy()
    for each in stricter:
        own &= ~each.gpus
    found = Effect(
        gpus=gpus,
        measured=int(both.sum()),
        after_s=after_s,
        over=_over(after, kind, value),
        others=int((both & ~own).sum()),
        stricter=tuple(each.id for each in stricter),
        together=tuple(
            each.id for each in beside if each.kind is not kind and (own & each.gpus).any()
        ),
    )
    if not own.any():
        return found
    return replace(
        found,
        power_before_w=round(float(before.power_w[own].sum()) * weight, 1),
        power_after_w=round(float(after.power_w[own].sum()) * weight, 1),
        temp_change_c=_mean((after.temp_c - before.temp_c)[own]),
        clock_change_mhz=_mean((after.sm_mhz - before.sm_mhz)[own]),
    )


def _strict(value: float | None) -> float:
    return -math.inf if value is None else value


def _over(after: Means, kind: RestrictionKind, value: float | None) -> int:
    if value is None or kind not in _OVER:
        return 0
    read = after.power_w if kind is RestrictionKind.POWER_CAP_W else after.sm_mhz
    return int((read > value * (1.0 + _OVER_SHARE) + _OVER[kind]).sum())


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 2) if len(known) else None


def outcome(applied: Applied | None, effect: Effect) -> Outcome:
    """Return the outcome. ``applied`` is None for kinds that no agent sets."""
    if applied is None:
        return Outcome.MEASURED if effect.measured else Outcome.UNMEASURED
    if not applied.applied:
        return Outcome.NOT_APPLIED
    if applied.applied < applied.expected:
        return Outcome.PARTLY
    if not effect.gpus:
        # On no GPU: those who hold it have read it back.
        return Outcome.HOLDS
    if not effect.measured:
        return Outcome.UNMEASURED
    exceeded = effect.over > _MAY_EXCEED * effect.measured
    return Outcome.EXCEEDED if exceeded else Outcome.HOLDS


def without_effect(told: Mapping[str, Mapping[str, Any]]) -> str:
    """Say why a limit in force has no effect; empty: it has one, or nobody knows yet.

    ``told``: the data of the ledger's lines on its present value, by their kind.
    """
    if "verdict" in told:
        found = told["verdict"].get("outcome")
        if found == Outcome.NOT_APPLIED:
            return "without effect: no GPU has it"
        if found == Outcome.EXCEEDED:
            effect = told["verdict"]["effect"]
            return f"without effect: {effect['over']} of {effect['measured']} GPUs are over it"
        return ""
    applied = told.get("applied")
    if applied is None or applied.get("applied") or not applied.get("expected"):
        return ""
    error = f": {applied['error']}" if applied.get("error") else ""
    return f"without effect: no GPU has set it{error}"


def sentence(
    kind: RestrictionKind, value: float | None, applied: Applied | None, effect: Effect | None
) -> str:
    """Return it in words: "asked 500 W, applied in 4 s on 31 of 32 GPUs, power fell 6.1 kW".

    Beside kinds that leave alone what runs, readings moved "meanwhile".
    """
    asked = f"asked {kind if value is None else spoken(value, KINDS[kind].unit)}"
    parts = [asked]
    if applied is not None:
        parts.append(_applied_words(applied, "hosts" if kind in ON_HOSTS else "GPUs"))
    if effect is not None and (effect.gpus or kind not in ON_HOSTS):
        words = _effect_words(effect)
        parts += words if kind in ON_WHAT_RUNS else [f"meanwhile {words[0]}", *words[1:]]
    return ", ".join(parts)


def _applied_words(applied: Applied, what: str) -> str:
    if what == "hosts" and not applied.expected:
        return "no host and no keeper of checkpoints says that it holds it"
    if not applied.applied:
        why = f": {applied.error}" if applied.error else ""
        return f"applied on none of {applied.expected} {what}{why}"
    within = "" if applied.seconds is None else f" in {applied.seconds:.0f} s"
    return f"applied{within} on {applied.applied} of {applied.expected} {what}"


def _effect_words(effect: Effect) -> list[str]:
    fell_w = effect.fell_w
    if fell_w is None and effect.stricter:
        return [f"nothing of its own: it counts at {_named(effect.stricter)}"]
    if fell_w is None:
        return ["nothing was measured"]
    words = [_change("power", fell_w / 1000.0, "kW", 0.05)]
    if effect.temp_change_c is not None and abs(effect.temp_change_c) >= 0.5:
        words.append(f"{abs(effect.temp_change_c):.0f} °C {_way(-effect.temp_change_c)}")
    if effect.over:
        words.append(f"{effect.over} of {effect.measured} GPUs are over it")
    words[-1] += f" in {_duration(effect.after_s)}"
    if effect.others:
        words.append(f"{effect.others} GPUs count at {_named(effect.stricter)}")
    if effect.together:
        words.append(f"together with {_named(effect.together)}: whose it is cannot be told")
    return words


def _named(numbers: Sequence[int]) -> str:
    plural = "s" if len(numbers) > 1 else ""
    return f"restriction{plural} {', '.join(map(str, numbers))}"


def _change(what: str, fell: float, unit: str, least: float) -> str:
    if abs(fell) < least:
        return f"{what} did not change"
    return f"{what} {'fell' if fell > 0 else 'rose'} {abs(fell):.1f} {unit}"


def _way(fell: float) -> str:
    return "cooler" if fell > 0 else "hotter"


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{math.floor(seconds / 60.0 + 0.5)} min"
