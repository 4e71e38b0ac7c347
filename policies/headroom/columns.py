"""The columns of headroom: quantities of every scope of a kind, as arrays.

Quantities are float64, and NaN is "unknown": a comparison with it is false. Times until something
is reached are +inf where it never is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policies.scopes import ScopeKind

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Texts: TypeAlias = NDArray[np.object_]
Labels: TypeAlias = Mapping[str, str]
Columns: TypeAlias = Mapping[str, NDArray[Any]]

#: How far ahead loads are forecast, by the end of a column's name, s.
HORIZONS: dict[str, float] = {"5m": 300.0, "15m": 900.0, "60m": 3600.0}


@dataclass(frozen=True)
class Field:
    """A column: its type as rules know it, its unit, and its description."""

    type: Literal["double", "bool", "string"]
    unit: str
    help: str


def _double(unit: str, text: str) -> Field:
    return Field("double", unit, text)


ALL = {
    "name": Field("string", "", "Name of the scope"),
    "site": Field("string", "", "Site that it is at; of a link, where it starts"),
    "age_s": _double("s", "Age of the oldest reading that counts; NaN: never heard"),
    "stale": Field("bool", "", "Some of it is assumed, since readings are too old or missing"),
}
POWER = {
    "power_budget_w": _double("W", "What may be drawn without end"),
    "power_load_w": _double("W", "Committed load: measured, else assumed, with what is reserved"),
    "power_drawn_w": _double("W", "That load without what is reserved and not drawn yet"),
    "power_measured_w": _double("W", "What readings show; NaN: none"),
    "power_reserved_w": _double("W", "What admitted jobs have reserved"),
    "power_headroom_w": _double("W", "Budget less load; below 0: over it"),
    "power_use": _double("", "Load as a share of the budget"),
    "power_drawn_use": _double("", "What is drawn as a share of the budget"),
    "power_confidence": _double("", "Share of the load that rests on fresh readings"),
}


def _ahead(quantity: str, budget: str, never: str) -> dict[str, Field]:
    """Return the columns that say how a load goes on; ``never``: what keeps it below for good."""
    return {
        f"{quantity}_slope_w_per_s": _double("W/s", "How the load moves, over the last minutes"),
        f"{quantity}_exhausted_in_s": _double(
            "s", f"Until the {budget} is used up at that slope; inf: {never} prevent it"
        ),
        **{
            f"{quantity}_load_{ahead}_w": _double(
                "W", f"Load forecast for {ahead[:-1]} minutes from now"
            )
            for ahead in HORIZONS
        },
    }


def _claims(quantity: str, budget: str) -> dict[str, Field]:
    """Return the columns that say whether a budget is claimed to be exceeded."""
    return {
        f"{quantity}_over_from_s": _double(
            "s", f"Until the {budget} would be exceeded, at the earliest; inf: nothing is claimed"
        ),
        f"{quantity}_over_upto_s": _double("s", "The same at the latest"),
        f"{quantity}_over_sure": _double("", "Share of loads that lately fell into its band"),
    }


POWER_AHEAD = _ahead("power", "budget", "limits in force")
POWER_CLAIMS = _claims("power", "budget")
BUDGET = {**POWER, **POWER_AHEAD, **POWER_CLAIMS}
COOLING_AHEAD = {
    **_ahead("cooling", "capacity", "limits in force, or budgets of its racks,"),
    **_claims("cooling", "capacity"),
}
FAILOVER = {
    "failover_load_w": _double("W", "Load if the other half of its pair fails; NaN: no pair"),
    "failover_headroom_w": _double("W", "Budget less that load"),
}
THERMAL = {
    "thermal_margin_c": _double("°C", "From the core of the tightest GPU to its slowdown"),
    "thermal_mem_margin_c": _double("°C", "From its memory to slowdown"),
    "shutdown_margin_c": _double("°C", "From its core to shutdown"),
    "thermal_steady_margin_c": _double("°C", "The first margin once heat has settled at this load"),
    "throttle_in_s": _double("s", "Until the first GPU is at its slowdown at this load"),
    "thermal_confidence": _double("", "Share of GPUs read fresh, and weighted by their fits"),
    "hottest_c": _double("°C", "Hottest core that is read fresh"),
    "throttling": _double("", "GPUs that throttle now"),
    "throttling_share": _double("", "The same as a share of all GPUs"),
    "gpus": _double("", "GPUs"),
}
COOLING = {
    "cooling_capacity_w": _double("W", "Heat that the zone carries away"),
    "cooling_load_w": _double("W", "Heat of its racks: their committed load"),
    "cooling_drawn_w": _double("W", "That heat without what is reserved and not drawn yet"),
    "cooling_headroom_w": _double("W", "Capacity less load"),
    "cooling_use": _double("", "Load as a share of the capacity"),
    "cooling_drawn_use": _double("", "What is drawn as a share of the capacity"),
    "supply_c": _double("°C", "Supply temperature that the inventory states"),
}
INLET = {"inlet_c": _double("°C", "Warmest reading of a temperature meter; NaN: no fresh one")}
LINK = {
    "link_capacity_bits_per_s": _double("bit/s", "For each direction"),
    "link_load_bits_per_s": _double("bit/s", "95th percentile of the last minutes, or now if more"),
    "link_reserved_bits_per_s": _double("bit/s", "What admitted jobs have reserved"),
    "link_headroom_bits_per_s": _double("bit/s", "Capacity less load and reservations"),
    "link_bulk_headroom_bits_per_s": _double("bit/s", "The same without control traffic's share"),
    "link_control_bits_per_s": _double("bit/s", "What control traffic gets for certain"),
    "link_use": _double("", "Load and reservations as a share of the capacity"),
    "link_slope_bits_per_s2": _double("bit/s²", "How the load moves, over the last minutes"),
    "link_exhausted_in_s": _double("s", "Until the capacity is used up at that slope"),
    "retransmits_per_s": _double("1/s", "Packets sent again"),
    "latency_s": _double("s", "Latency as measured"),
    "latency_inflation": _double("", "The same as a multiple of what the inventory states"),
    "is_wan": Field("bool", "", "Whether it leads to another site"),
}
STORAGE = {
    "storage_capacity_bytes_per_s": _double("byte/s", "As the inventory states"),
    "storage_load_bytes_per_s": _double("byte/s", "What admitted jobs have reserved; NaN: unknown"),
    "storage_headroom_bytes_per_s": _double("byte/s", "Capacity less load"),
    "storage_use": _double("", "Load as a share of the capacity"),
    "fsync_s": _double("s", "95th percentile of a small durable write, over mounts"),
    "read_s": _double("s", "95th percentile of a small read, over mounts"),
    "mounts": _double("", "Mounts with a fresh reading"),
}
HEALTH = {
    "stale_nodes": _double("", "Nodes that are stale"),
    "stale_share": _double("", "The same as a share of all nodes"),
    "lemon_gpus": _double("", "GPUs that are worse than their peers"),
    "xid_recent": _double("", "Xid errors within the last hour"),
}
CHECKPOINTS = {
    "checkpoint_lag_s": _double(
        "s",
        "How much older the latest checkpoint at another site is than that at the loop, of "
        "the job here that is behind most; NaN: nobody tells",
    ),
    "checkpoint_lag_steps": _double("", "Steps between the two, of the job with most"),
    "checkpoint_lag_bytes": _double("byte", "What has still to be sent, of the job with most"),
    "checkpoint_bare_jobs": _double("", "Jobs here with no whole checkpoint at another site"),
}
BINDING = {
    "binding": Field("string", "", "Reason token of the tightest constraint; empty: none known"),
    "tightest": _double("", "What that constraint leaves, as a share; below 0: over it"),
}

#: What rules, pages and the API may ask of the scopes of each kind.
FIELDS: dict[ScopeKind, dict[str, Field]] = {
    ScopeKind.SITE: {**ALL, **BUDGET, **THERMAL, **INLET, **HEALTH, **CHECKPOINTS, **BINDING},
    ScopeKind.ZONE: {**ALL, **COOLING, **COOLING_AHEAD, **THERMAL, **INLET, **BINDING},
    ScopeKind.POWER_DOMAIN: {**ALL, **BUDGET, **FAILOVER, **BINDING},
    ScopeKind.RACK: {**ALL, **BUDGET, **THERMAL, **INLET, **HEALTH, **BINDING},
    ScopeKind.NODE: {**ALL, **POWER, **POWER_AHEAD, **THERMAL, **HEALTH, **BINDING},
    ScopeKind.GPU: {**ALL, **POWER, **POWER_AHEAD, **THERMAL, **BINDING},
    ScopeKind.LINK: {**ALL, **LINK, **BINDING},
    ScopeKind.STORAGE: {**ALL, **STORAGE, **BINDING},
}


class ColumnsByGroup(Mapping[str, NDArray[Any]]):
    """Columns that are made in groups, each when the first of it is asked for."""

    def __init__(self, groups: Iterable[tuple[Iterable[str], Callable[[], Columns]]]) -> None:
        self._group = {name: make for names, make in groups for name in names}
        self._made: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._made:
            self._made |= self._group[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)


def _no_labels() -> Sequence[Labels]:
    return ()


@dataclass(frozen=True, eq=False)
class Table:
    """All scopes of one kind. Row *i* is the *i*-th element of ``names`` and of each column.

    Its columns are those of ``FIELDS[kind]``, and its rows those of the inventory's table. Of many
    moments a column is (times, rows), and (rows,) where it is the same at all of them.
    """

    kind: ScopeKind
    names: Texts
    columns: Columns
    labels_of: Callable[[], Sequence[Labels]] = field(default=_no_labels, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def labels(self) -> Sequence[Labels]:
        """The labels of each row, of those kinds that have some: nodes."""
        return self.labels_of() or [{}] * len(self)

    @cached_property
    def index_by_name(self) -> dict[str, int]:
        """Row by name."""
        return {name: row for row, name in enumerate(self.names.tolist())}

    def row(self, name: str) -> dict[str, Any]:
        """Return the values of one scope by column, as plain numbers. Raises KeyError."""
        at = self.index_by_name[name]
        return {key: values[at].item() if values.dtype != object else values[at]
                for key, values in self.columns.items()}  # fmt: skip
