"""Changes to a job that waits, with what each costs its team and others, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from admission.core.request import Locality, Placement, Request
from admission.core.response.first_step import FirstStep
from admission.core.snapshot import ClassRules
from fleet.partitions import share_of
from headroom.jobs.words import lasting

__all__ = ["Burden", "Change", "Counterfactual", "Price", "sentence"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change to a job that waits. None: as it is."""

    lowest_cap_w: float | None = None
    #: goes with a cap: how much slower it may become, as a share
    max_slowdown: float | None = None
    #: just so many
    gpus: int | None = None
    #: MIG profile of another slice
    slice: str | None = None
    #: it is stopped after so long
    walltime_s: float | None = None
    #: it writes checkpoints, so often
    checkpoint_interval_s: float | None = None
    #: "optional": its checkpoints need not be copied to another site
    cross_site: str | None = None
    sites: tuple[str, ...] | None = None
    #: how close together it has to stand at least
    locality: Locality | None = None
    job_class: str | None = None
    #: it waits so long at most for a cheaper or cleaner hour
    may_wait_s: float | None = None
    #: nothing is changed: it begins at that time, Unix s
    begin_at: float | None = None

    def apply(self, request: Request, classes: Mapping[str, ClassRules]) -> Request:
        """Return ``request`` with this change. Raises KeyError for a class that is not there."""
        return replace(request, **self._edits(request, classes))

    def _edits(self, request: Request, classes: Mapping[str, ClassRules]) -> dict[str, Any]:
        as_they_are = (
            "lowest_cap_w", "max_slowdown", "walltime_s", "checkpoint_interval_s", "may_wait_s",
        )  # fmt: skip
        given = {name: getattr(self, name) for name in (*as_they_are, "sites")}
        edits: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.gpus is not None:
            edits |= {"gpus": self.gpus, "min_gpus": self.gpus}
        if self.slice is not None:
            share = share_of(self.slice, request.models)
            edits |= {"slice": self.slice, "gpu_share": share}
        if self.cross_site is not None:
            edits["cross_site_checkpoint"] = self.cross_site == "required"
        if self.locality is not None:
            edits |= {
                "required": self.locality,
                "preferred": min(request.preferred, self.locality),
            }
        if self.job_class is not None:
            own = classes.get(request.job_class, ClassRules(request.job_class))
            more = classes[self.job_class].priority - own.priority
            edits |= {"job_class": self.job_class, "priority": request.priority + more}
        return edits

    def as_json(self) -> dict[str, Any]:
        """Return the changed fields, by name. Empty where the job need only wait."""
        values = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name != "begin_at"
        }
        found = {name: value for name, value in values.items() if value is not None}
        if self.locality is not None:
            found["locality"] = self.locality.name.lower().replace("_", "-")
        if self.sites is not None:
            found["sites"] = list(self.sites)
        return found


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a change to the team, against what the job asks for now."""

    #: share of its speed that it gives up
    slower: float = 0.0
    #: it begins so much later than at once, s
    later_s: float = 0.0
    #: share of its walltime that this run no longer has
    less_work: float = 0.0
    #: whether what is done by the end of a shorter run is kept
    keeps_work: bool = True

    def delay_s(self, walltime_s: float) -> float:
        """Return by how much the same work is done later if it takes ``walltime_s`` now, s.

        What a shorter run leaves undone takes another one; if it keeps nothing, all of it does.
        """
        speed = max(1.0 - self.slower, 1e-3)
        again = 0.0 if self.less_work == 0.0 else self.less_work if self.keeps_work else 1.0
        return self.later_s + walltime_s * (1.0 / speed - 1.0 + again)


@dataclass(frozen=True, kw_only=True)
class Burden:
    """The cost of a change to others: jobs that wait and that it would go ahead of."""

    #: keys, in the order in which they wait; to be shown only to those who may see them
    passed: tuple[str, ...]
    #: those of them that are of its own project
    own: int
    #: so many GPUs that they may wait for are held for so long at most, s
    gpus: int
    hold_s: float
    #: what is kept for one of them is free so much later, s
    put_off_s: float = 0.0


@dataclass(frozen=True)
class Counterfactual:
    """A change under which the job starts, and where it would stand."""

    change: Change
    sentence: str
    placement: Placement
    price: Price = Price()
    #: None: nobody
    burden: Burden | None = None
    #: always: it was tried by the code that decides
    verified: bool = True
    #: None: it moves the job to no other site
    first_step: FirstStep | None = None

    @property
    def slowdown(self) -> float:
        """The share of its speed that it gives up."""
        return self.price.slower

    @property
    def starts_now(self) -> bool:
        """Whether it starts with the next cycle."""
        return self.change.begin_at is None


# --- In words ------------------------------------------------------------------------------------

_WHOLES = {
    Locality.NODE: "node",
    Locality.RACK: "rack",
    Locality.SWITCH_DOMAIN: "switch domain",
    Locality.ZONE: "cooling zone",
    Locality.SITE: "site",
    Locality.FLEET: "sites",
}


_WAITED_FOR = {"price": "cheaper", "carbon": "cleaner"}


def sentence(
    change: Change,
    old: Request,
    placement: Placement,
    price: Price,
    burden: Burden | None,
    *,
    begins: str = "starts now",
) -> str:
    """Return a change with what it costs: ``starts now at 550 W per GPU (4 % slower)``.

    ``begins`` is its first words. It names no other job: who is passed stands in the burden, for
    those who may see them.
    """
    costs = "; ".join((*_costs(old, price), *_burdens(burden, old)))
    ways = _ways(change, old, placement, begins)
    return f"{' '.join(ways)}{f' ({costs})' if costs else ''}"


def _ways(change: Change, old: Request, placement: Placement, begins: str) -> list[str]:
    if change.begin_at is not None:
        return [f"starts at {datetime.fromtimestamp(change.begin_at, UTC):%H:%M} UTC as it is"]
    parts = [begins, *_gpus(change, old, placement)]
    if change.sites is not None:
        parts.append(f"at site {' and '.join(placement.sites)}")
    if change.locality is not None:
        parts.append(f"spread over its {_WHOLES[change.locality]}")
    if change.walltime_s is not None:
        parts.append(f"for {lasting(change.walltime_s)} of its {lasting(old.walltime_s)}")
    if change.checkpoint_interval_s is not None:
        parts.append(f"writing checkpoints every {lasting(change.checkpoint_interval_s)}")
    if change.cross_site is not None:
        parts.append("with checkpoints that stay at its site")
    if change.job_class is not None:
        parts.append(f"in class {change.job_class}")
    if change.may_wait_s is not None:
        parts.append(f"without waiting for {_WAITED_FOR[old.prefers]} power")
    return parts


def _gpus(change: Change, old: Request, placement: Placement) -> list[str]:
    """Return what becomes of its GPUs, in words."""
    parts = []
    if change.lowest_cap_w is not None and placement.power_cap_w is not None:
        parts.append(f"at {placement.power_cap_w:.0f} W per GPU")
    if change.gpus is not None:
        parts.append(f"with {change.gpus} of its {old.gpus} GPUs")
    if change.slice is not None:
        parts.append(f"as {change.slice}")
    return parts


def _costs(old: Request, price: Price) -> list[str]:
    found = []
    if price.slower >= 0.005:
        found.append(f"{100.0 * price.slower:.0f} % slower")
    if price.later_s > 0.0:
        later = lasting(price.later_s)
        found.append(f"{later} later, when the walltime of enough of what runs is up")
    if price.less_work > 0.0:
        less = lasting(price.less_work * old.walltime_s)
        left = "left for another run" if price.keeps_work else "less, and what is not done is lost"
        found.append(f"{less} {left}")
    return found


def _burdens(burden: Burden | None, old: Request) -> list[str]:
    if burden is None:
        return []
    count = len(burden.passed)
    own = f", {burden.own} of its own project" if burden.own else ""
    text = (
        f"goes ahead of {count} {'job that waits' if count == 1 else 'jobs that wait'}{own}, and"
        f" holds {burden.gpus} {_unit(old, burden.gpus)} for up to"
        f" {lasting(burden.hold_s)}"
    )
    if burden.put_off_s > 0.0:
        text += f": one of them may begin {lasting(burden.put_off_s)} later"
    return [text]


def _unit(request: Request, count: int) -> str:
    return request.unit.removesuffix("s") if count == 1 else request.unit
