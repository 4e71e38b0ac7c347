"""The one constraint that binds each scope, with its numbers."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fleet.groups import at
from policies.headroom.columns import Bools, Floats, Ints, Texts
from policies.scopes import Scope, ScopeKind
from telemetry.summary import FULL_HEAT_MARGIN_C

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
#: A difference is shown right to such a share of itself.
_CLOSE = 0.05
#: What floats may be off by, as a share of the larger number.
_ROUNDING = 1e-12
#: Decimals of a number before a smaller unit is taken; and in the smallest one.
_MOST_DECIMALS, _FINEST = 2, 7


class Token(enum.StrEnum):
    """The tokens of constraints. Jobs that wait have the same ones as reasons."""

    TELEMETRY_STALE = "TelemetryStale"
    RACK_POWER = "RackPowerHeadroom"
    FEED_POWER = "FeedPowerHeadroom"
    FEED_REDUNDANCY = "FeedRedundancy"
    SITE_POWER = "SitePowerHeadroom"
    THERMAL = "ThermalHeadroom"
    COOLING = "CoolingCapacity"
    LINK = "LinkHeadroom"
    STORAGE = "StorageHeadroom"


@dataclass(frozen=True, eq=False)
class Constraint:
    """One constraint on all scopes of a kind: the share that it leaves, and where it lies.

    ``row`` is that of the scope that is short, in the table of ``where``.
    """

    token: Token
    share: Floats
    where: ScopeKind
    row: Ints


@dataclass(frozen=True, eq=False)
class Tightest:
    """The tightest constraint of each scope of a kind: the share that it leaves, and where it lies.

    ``choice`` is a place in ``limits``, -1 where nothing is known; ``row`` is as in Constraint.
    """

    limits: tuple[tuple[Token, ScopeKind], ...]
    choice: Ints
    share: Floats
    row: Ints

    def of(self, wholes: Ints) -> Tightest:
        """Return the constraints of parts of the scopes: ``wholes`` are their rows, -1 for none."""
        choice, row = (at(each, wholes, -1) for each in (self.choice, self.row))
        return Tightest(self.limits, choice, at(self.share, wholes), row)

    def beside(self, other: Constraint) -> Tightest:
        """Return the tightest when ``other`` holds, too; the earlier one where they are equal."""
        tighter = ~np.isnan(other.share) & ~(other.share >= self.share)
        return Tightest(
            (*self.limits, (other.token, other.where)),
            np.where(tighter, len(self.limits), self.choice),
            np.where(tighter, other.share, self.share),
            np.where(tighter, other.row, self.row),
        )

    def tokens(self, unseen: Bools) -> Texts:
        """Return the token of each scope, empty where nothing is known.

        Where nothing of a scope was ever heard, that is what binds, not what was assumed for it.
        """
        names = np.array([*(token.value for token, _ in self.limits), ""], dtype=np.object_)
        found: Texts = names[self.choice]
        return np.where(unseen & (self.choice >= 0), Token.TELEMETRY_STALE.value, found)


@dataclass(frozen=True)
class Binding:
    """The constraint that binds a scope: where it lies, and the headroom that it leaves there.

    ``budget`` less ``load`` is ``left``, in ``unit``; below 0 it is short by so much.
    """

    token: str
    where: Scope
    budget: float
    load: float
    left: float
    unit: str
    share: float
    sentence: str


def tightest(constraints: Sequence[Constraint]) -> Tightest:
    """Return which of ``constraints``, all over the same scopes, leaves the least share."""
    none = np.full(constraints[0].share.shape, -1)
    found = Tightest((), none, np.full(none.shape, np.nan), none)
    for each in constraints:
        found = found.beside(each)
    return found


def least_of(share: Floats, candidates: Ints) -> tuple[Floats, Ints]:
    """Return the least ``share`` in each column of ``candidates`` (rows, -1: none), and its row.

    NaN and -1 where no share is known.
    """
    shares = at(share, candidates)
    known = np.where(np.isnan(shares), np.inf, shares)
    place = known.argmin(axis=-2)
    least = known.min(axis=-2)
    row = candidates[place, np.arange(candidates.shape[1])]
    none = np.isinf(least)
    return np.where(none, np.nan, least), np.where(none, -1, row)


def heat_share(margin_c: Floats) -> Floats:
    """Return a margin to slowdown as a share of the margin of a cool, idle GPU."""
    return np.minimum(margin_c / FULL_HEAT_MARGIN_C, 1.0)


def quantity(value: float, unit: str) -> str:
    """Return a quantity in words: ``41.2 kW``, ``12.5 Gbit/s``, ``3.1 °C``."""
    if unit == "°C":
        return f"{value:.1f} °C"
    if value == 0:
        return f"0 {unit}"
    for factor, name in _scales(unit):
        if abs(value) >= factor:
            return f"{_three(value / factor)} {name}"
    return f"{_three(value)} {unit}"


@cache
def _scales(unit: str) -> tuple[tuple[float, str], ...]:
    """Return the units in which amounts of ``unit`` are told, the largest first."""
    if unit == "s":
        return _TIMES
    if unit == "°C":
        return ((1.0, unit),)
    return tuple((factor, prefix + unit) for factor, prefix in _PREFIXES)


def _three(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:,.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    return 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2


@dataclass(frozen=True, slots=True)
class Balance:
    """A need, what there is of it, and the difference, in one unit and with the same decimals.

    ``need`` less ``have`` is ``short`` in the digits that are shown; below 0 that much is left.
    """

    need: float
    have: float
    decimals: int
    unit: str

    @property
    def short(self) -> float:
        return self.need - self.have

    def told(self, value: float) -> str:
        """Return one of the three, or its opposite, in words: ``2,864.7 W``."""
        return f"{value + 0.0:,.{self.decimals}f} {self.unit}"


def balance(need: float, have: float, unit: str) -> Balance:
    """Return the difference of two quantities such that whoever subtracts gets what is shown.

    The unit is the largest, and the decimals are the fewest, in which the difference is right to a
    twentieth. ``s`` is told in minutes, hours or days where that is enough.
    """
    short, most = need - have, max(abs(need), abs(have))
    scales = [each for each in _scales(unit) if each[0] <= most] or [_scales(unit)[-1]]
    for place, (factor, name) in enumerate(scales):
        fewest = 1 if unit == "°C" else _decimals(most / factor)
        is_last = place == len(scales) - 1
        for decimals in range(fewest, _FINEST if is_last else _MOST_DECIMALS + 1):
            found = Balance(round(need / factor, decimals), round(have / factor, decimals),
                            decimals, name)  # fmt: skip
            if abs(found.short * factor - short) <= _CLOSE * abs(short) + _ROUNDING * most:
                return found
    return found


def sentence(
    token: Token, where: Scope, budget: float, load: float, unit: str, mate: str = ""
) -> str:
    """Describe the constraint that binds. ``mate``: the half of a pair whose failure is assumed."""
    left = budget - load
    kind = where.kind.replace("_", " ")
    if token is Token.THERMAL:
        way = f"{quantity(abs(left), unit)} {'below' if left >= 0 else 'above'} its slowdown"
        return f"The tightest GPU of {kind} {where.name} is {way} at {quantity(budget, unit)}."
    of = f"{of_budget(load, budget, unit)}."
    if mate:
        return f"If {mate} failed, {kind} {where.name} would carry {of}"
    verb = "cools" if token is Token.COOLING else "carries"
    return f"{kind.capitalize()} {where.name} {verb} {of}"


def of_budget(load: float, budget: float, unit: str) -> str:
    """Return a load, its budget and what that leaves: ``41.2 kW of 44.0 kW: 2.8 kW left``."""
    told = balance(load, budget, unit)
    rest = f"short {told.told(told.short)}" if load > budget else f"{told.told(-told.short)} left"
    return f"{told.told(told.need)} of {told.told(told.have)}: {rest}"
