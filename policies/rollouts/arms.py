"""Which racks are changed first, and which these are compared with: alike in all known. Pure.

Of many random choices the canary is one of those most like the rest (rerandomization, Morgan and
Rubin 2012): chance keeps what nobody wrote down from being on one side, and what is written down
does not get there by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arms", "Racks", "choose"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

#: So many choices are drawn, and one of the best is taken.
_DRAWS = 2000
#: Standardized differences up to this count as alike (Austin 2009 has 0.1 for samples of hundreds;
#: of a handful of racks hardly any choice is so near).
ALIKE = 0.25


@dataclass(frozen=True)
class Racks:
    """What is known of racks, an element each.

    ``age_days`` is NaN where nobody knows it. ``load`` is (racks, quantities): what the mix of jobs
    on each comes to, such as its draw over its budget, the share of its GPUs that work, and the
    share of them under each kind of job; ``load_names`` has a name for each. Racks that are not
    ``eligible`` are in no arm.
    """

    gpus: Array
    model: Ints
    cooling: Ints
    age_days: Array
    load: Array
    load_names: tuple[str, ...]
    eligible: Bools


@dataclass(frozen=True)
class Arms:
    """A choice: the racks to change, those to compare with, and by how much the two differ.

    ``imbalance`` is by property: the difference of means over the standard deviation of all.
    """

    canary: Bools
    control: Bools
    imbalance: dict[str, float]

    @property
    def are_alike(self) -> bool:
        """Whether no property differs by more than :data:`ALIKE`."""
        return max(map(abs, self.imbalance.values()), default=0.0) <= ALIKE


def choose(racks: Racks, *, gpus: float, seed: int, fixed: Bools | None = None) -> Arms:
    """Choose racks with at least ``gpus`` GPUs, and the rest that is of their kind to compare with.

    ``fixed``: these are the canary, whoever named them, and only the rest is found. The same racks
    and seed give the same choice. Raises ValueError where nothing is left to compare with.
    """
    places = np.flatnonzero(racks.eligible)
    values, names = _properties(racks, places)
    if fixed is not None:
        chosen = fixed[places][None]
    else:
        chosen = _drawn(racks.gpus[places], gpus, np.random.default_rng(seed))
    if not (chosen.any(axis=1) & ~chosen.all(axis=1)).any():
        raise ValueError("no racks are left to compare with: name fewer, or a smaller share")
    differences = _differences(chosen, values, racks.gpus[places])
    worst = np.abs(differences).max(axis=1, initial=0.0)
    best = int(worst.argmin())
    canary = np.zeros(racks.eligible.size, dtype=np.bool_)
    canary[places[chosen[best]]] = True
    control = racks.eligible & ~canary & _of_their_kind(racks, canary)
    if not control.any():
        raise ValueError("no other rack has the GPUs and the cooling of those: choose others")
    told = dict(zip(names, differences[best].tolist(), strict=True))
    return Arms(canary, control, told)


def _drawn(gpus: Array, wanted: float, rng: np.random.Generator) -> Bools:
    """Return choices, (draws, racks): racks in a random order until there are enough GPUs."""
    order = rng.random((_DRAWS, gpus.size)).argsort(axis=1)
    before = np.cumsum(gpus[order], axis=1) - gpus[order]
    chosen = np.zeros(order.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, before < wanted, axis=1)
    return chosen


def _properties(racks: Racks, places: NDArray[np.intp]) -> tuple[Array, list[str]]:
    """Return the properties of racks as numbers, (racks, properties): a share for each model.

    What is not known of a rack is the mean of the others: it neither helps nor hinders.
    """
    columns: dict[str, Array] = {}
    for name, kinds in (("model", racks.model), ("cooling", racks.cooling)):
        for kind in np.unique(kinds[places]):
            columns[f"{name} {kind}"] = (kinds[places] == kind).astype(np.float64)
    columns["age"] = racks.age_days[places]
    columns |= {
        name: racks.load[places, at] for at, name in enumerate(racks.load_names)
    }  # fmt: skip
    found = {}
    for name, values in columns.items():
        known = np.isfinite(values)
        if known.any() and np.ptp(values[known]) > 0.0:
            found[name] = np.where(known, values, values[known].mean())
    if not found:
        return np.zeros((places.size, 0)), []
    return np.stack(list(found.values()), axis=1), list(found)


def _differences(chosen: Bools, values: Array, gpus: Array) -> Array:
    """Return standardized differences, (choices, properties), weighted by GPUs."""
    spread = values.std(axis=0)
    means = []
    for side in (chosen, ~chosen):
        weight = side * gpus
        total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
        means.append(weight @ values / total)
    return np.asarray((means[0] - means[1]) / np.where(spread > 0.0, spread, 1.0))


def _of_their_kind(racks: Racks, canary: Bools) -> Bools:
    """Say of each rack whether the canary has its GPUs and its cooling, too."""
    kinds = racks.model * (int(racks.cooling.max(initial=0)) + 1) + racks.cooling
    return np.isin(kinds, kinds[canary])
