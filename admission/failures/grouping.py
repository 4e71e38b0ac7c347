"""Failures by component, GPU model, rack or site, each with its rate. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from admission.core.failures import COMPONENTS, COUNTED, Failure, Rates, rates
from admission.core.outlook import GpuRate
from admission.failures.reading import Observed
from fleet.snapshot import FleetArrays

__all__ = ["By", "Group", "Observation", "groups_of", "rate_of", "whole_fleet"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Components that each GPU has; of the others each node has one.
_OF_GPUS = ("gpu", "gpu_memory", "nvlink")
#: A model with fewer failures is not told apart from the fleet.
_ENOUGH = 5


class By(enum.StrEnum):
    """How failures are grouped."""

    COMPONENT = "component"
    MODEL = "model"
    RACK = "rack"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Observation:
    """How often devices failed. Rates are per device-hour, with bounds; None: nothing observed.

    ``failures`` are those that count for the rate: while their nodes were observed. In between they
    were not for ``silent_h``, in which their agents were silent. ``mtbf_h`` is of one device,
    ``every_h`` of all.
    """

    devices: int
    device_h: float
    silent_h: float
    failures: int
    rate_per_h: float | None
    rate_lower_per_h: float | None
    rate_upper_per_h: float | None
    #: None: there was no failure, or nothing was observed
    mtbf_h: float | None
    mtbf_lower_h: float | None
    every_h: float | None


@dataclass(frozen=True, slots=True)
class Group:
    """The failures of one component, model, rack or site: all by cause, and what counts as rate."""

    name: str
    #: "gpu" or "node"
    device: str
    causes: Mapping[str, int]
    observed: Observation


def whole_fleet(found: Observed) -> Group:
    """Return the failures of the whole fleet, whose rate is that of a GPU."""
    rate = rates(_one(_counted(found.rated)), _one(found.gpu_exposure_s.sum()))
    causes = Counter(each.cause.value for each in found.failures)
    silent_s = float(found.silent_s[found.fleet.gpus.node].sum())
    return Group("fleet", "gpu", causes, _observation(rate, 0, len(found.fleet.gpus), silent_s))


def groups_of(found: Observed, by: By) -> list[Group]:
    """Return the groups of a fleet, those that fail most first.

    A failure whose node is not known is in a group only where all that it may be of are.
    """
    if by is By.COMPONENT:
        return _by_component(found)
    names, of_nodes = _KEYS[by](found.fleet)
    count = len(names)
    counted = [_group_of(each, of_nodes) for each in found.rated if each.cause in COUNTED]
    groups = np.array(counted, dtype=np.int64)
    of_gpus = of_nodes[found.fleet.gpus.node]
    known = of_gpus >= 0
    exposure_s, silent_s = (
        np.bincount(of_gpus[known], each[found.fleet.gpus.node][known], count).astype(np.float64)
        for each in (found.exposure_s, found.silent_s)
    )
    devices = np.bincount(of_gpus[known], minlength=count)
    numbers = np.bincount(groups[groups >= 0], minlength=count)
    rate = rates(numbers.astype(np.float64), exposure_s)
    causes: list[Counter[str]] = [Counter() for _ in names]
    for failure in found.failures:
        if (group := _group_of(failure, of_nodes)) >= 0:
            causes[group][failure.cause.value] += 1
    made = [
        Group(name, "gpu", causes[row], _observation(rate, row, int(devices[row]), silent_s[row]))
        for row, name in enumerate(names)
        if devices[row]
    ]
    return sorted(made, key=_worst_first)


def rate_of(observed: Observed, models: tuple[str, ...] = ()) -> GpuRate | None:
    """Return how often a GPU fails: of the one model, where enough of it failed, else of all.

    None: nothing was observed.
    """
    fleet = whole_fleet(observed)
    of_models = {each.name: each for each in groups_of(observed, By.MODEL)}
    own = of_models.get(models[0]) if len(models) == 1 else None
    group = own if own is not None and own.observed.failures >= _ENOUGH else fleet
    return _rate(group, "all GPUs" if group is fleet else group.name)


def _rate(group: Group, basis: str) -> GpuRate | None:
    found = group.observed
    if found.rate_per_h is None or found.rate_lower_per_h is None or not found.rate_upper_per_h:
        return None
    return GpuRate(
        found.rate_per_h / 3600.0, found.rate_lower_per_h / 3600.0, found.rate_upper_per_h / 3600.0,
        found.failures, basis,
    )  # fmt: skip


def _by_component(found: Observed) -> list[Group]:
    names = list(dict.fromkeys(COMPONENTS.values()))
    counts = Counter(each.component for each in found.rated)
    of_gpus = np.array([name in _OF_GPUS for name in names])
    gpu_s, node_s = found.gpu_exposure_s.sum(), found.exposure_s.sum()
    silent_s = {True: found.silent_s[found.fleet.gpus.node].sum(), False: found.silent_s.sum()}
    rate = rates(
        np.array([counts[name] for name in names], dtype=np.float64),
        np.where(of_gpus, gpu_s, node_s),
    )
    sizes = {True: ("gpu", len(found.fleet.gpus)), False: ("node", len(found.fleet.nodes))}
    made = []
    for row, name in enumerate(names):
        is_gpu = bool(of_gpus[row])
        device, devices = sizes[is_gpu]
        causes = Counter(each.cause.value for each in found.failures if each.component == name)
        observed = _observation(rate, row, devices, silent_s[is_gpu])
        made.append(Group(name, device, causes, observed))
    return sorted(made, key=_worst_first)


def _worst_first(group: Group) -> tuple[int, int, str]:
    return -group.observed.failures, -sum(group.causes.values()), group.name


def _counted(failures: Sequence[Failure]) -> int:
    return sum(each.cause in COUNTED for each in failures)


def _one(value: float) -> NDArray[np.float64]:
    return np.array([value], dtype=np.float64)


def _group_of(failure: Failure, of_nodes: Ints) -> int:
    groups = {int(of_nodes[node]) for node in failure.nodes}
    return groups.pop() if len(groups) == 1 else -1


def _models(fleet: FleetArrays) -> tuple[list[str], Ints]:
    """Return the names of GPU models, and the model of each node's first GPU, -1: it has none."""
    has_gpus = np.diff(fleet.gpu_bounds) > 0
    of_nodes = np.full(len(fleet.nodes), -1, dtype=np.int64)
    of_nodes[has_gpus] = fleet.gpus.model[fleet.gpu_bounds[:-1][has_gpus]]
    return fleet.models.names.tolist(), of_nodes


def _racks(fleet: FleetArrays) -> tuple[list[str], Ints]:
    return fleet.racks.paths.tolist(), fleet.nodes.rack


def _sites(fleet: FleetArrays) -> tuple[list[str], Ints]:
    return fleet.sites.names.tolist(), fleet.racks.site[fleet.nodes.rack]


_KEYS: Mapping[By, Callable[[FleetArrays], tuple[list[str], Ints]]] = {
    By.MODEL: _models,
    By.RACK: _racks,
    By.SITE: _sites,
}


def _observation(rate: Rates, row: int, devices: int, silent_s: float) -> Observation:
    per_h = [_known(3600.0 * each[row]) for each in (rate.rate, rate.lower, rate.upper)]
    failures = int(rate.failures[row])
    hours = float(rate.exposure_s[row]) / 3600.0
    return Observation(
        devices=devices,
        device_h=hours,
        silent_h=float(silent_s) / 3600.0,
        failures=failures,
        rate_per_h=per_h[0],
        rate_lower_per_h=per_h[1],
        rate_upper_per_h=per_h[2],
        mtbf_h=hours / failures if failures and hours else None,
        mtbf_lower_h=1.0 / per_h[2] if per_h[2] else None,
        every_h=hours / failures / devices if failures and hours and devices else None,
    )


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
