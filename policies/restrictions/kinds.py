"""The kinds of restrictions, the values that they take, and the scopes that they may hold for."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.tables import FleetArrays
from physics.hardware.drivers import LEAST_CLOCK_SHARE, LEAST_POWER_SHARE
from policies.scopes import MOST_NAME, Scope, ScopeKind, UnknownScope, nodes_in, row_of

__all__ = [
    "HELD_BEFORE",
    "KINDS",
    "LIMITS",
    "LONGEST",
    "ON_HOSTS",
    "ON_WHAT_RUNS",
    "BadRestriction",
    "Kind",
    "RestrictionKind",
    "Wanted",
    "check",
    "gpus_in",
]

#: What is announced is held from so long before it has to be met: readings, decisions, agents and
#: drivers take their time.
HELD_BEFORE = timedelta(seconds=30)
#: No lease is longer.
LONGEST = timedelta(days=30)


class RestrictionKind(enum.StrEnum):
    """The kind of a restriction."""

    #: No job starts here. Those that run go on.
    NO_NEW_LAUNCHES = "no_new_launches"
    #: At most so many jobs run here at a time.
    MAX_CONCURRENT_JOBS = "max_concurrent_jobs"
    #: No GPU here draws more, W.
    POWER_CAP_W = "power_cap_w"
    #: All that is here draws no more together, W.
    POWER_BUDGET_W = "power_budget_w"
    #: No SM here runs faster, MHz.
    CLOCK_CAP_MHZ = "clock_cap_mhz"
    #: Jobs here run with at most this share of their batch.
    MAX_BATCH_SCALE = "max_batch_scale"
    #: Jobs here use no other site.
    LOCAL_ONLY = "local_only"
    #: Checkpoints do not leave the site.
    NO_CROSS_SITE_CHECKPOINT = "no_cross_site_checkpoint"
    #: Jobs here are moved away, and none starts.
    DRAIN = "drain"
    #: Of two places that fit, the other one is taken.
    PREFER_AWAY = "prefer_away"
    #: Jobs use at most this share of a link's capacity.
    LINK_SHARE = "link_share"
    #: What would start here waits for a person.
    HOLD_FOR_REVIEW = "hold_for_review"


_PLACES = frozenset(
    {ScopeKind.SITE, ScopeKind.ZONE, ScopeKind.POWER_DOMAIN, ScopeKind.RACK, ScopeKind.NODE}
)
_BUDGETED = _PLACES - {ScopeKind.NODE}
_QUEUE = frozenset({ScopeKind.CLASS, ScopeKind.JOB})


@dataclass(frozen=True)
class Kind:
    """The scopes and values of all restrictions of a kind. The lowest value is the strictest."""

    scopes: frozenset[ScopeKind]
    help: str
    #: of ``value``; empty: the kind takes none
    unit: str = ""
    least: float = 0.0
    most: float = math.inf
    is_whole: bool = False
    #: it may be announced: issued before it has to be met
    may_start_later: bool = False

    @property
    def takes_value(self) -> bool:
        return bool(self.unit)


#: All kinds, in the order in which they are documented.
KINDS: dict[RestrictionKind, Kind] = {
    RestrictionKind.NO_NEW_LAUNCHES: Kind(
        _PLACES | {ScopeKind.STORAGE, ScopeKind.CLASS}, "No job starts here; those that run go on"
    ),
    RestrictionKind.MAX_CONCURRENT_JOBS: Kind(
        _PLACES | {ScopeKind.STORAGE, ScopeKind.CLASS},
        "At most so many jobs run here at a time",
        unit="jobs",
        most=1e6,
        is_whole=True,
    ),
    RestrictionKind.POWER_CAP_W: Kind(
        _PLACES | {ScopeKind.GPU}, "No GPU here draws more", unit="W", least=1.0, most=1e5
    ),
    RestrictionKind.POWER_BUDGET_W: Kind(
        _BUDGETED,
        "All that is here draws no more together",
        unit="W",
        least=1.0,
        most=1e10,
        may_start_later=True,
    ),
    RestrictionKind.CLOCK_CAP_MHZ: Kind(
        _PLACES | {ScopeKind.GPU}, "No SM here runs faster", unit="MHz", least=1.0, most=1e5
    ),
    RestrictionKind.MAX_BATCH_SCALE: Kind(
        _PLACES | _QUEUE,
        "Jobs run with at most this share of their batch",
        unit="share",
        least=0.01,
        most=1.0,
    ),
    RestrictionKind.LOCAL_ONLY: Kind(
        _QUEUE | {ScopeKind.SITE, ScopeKind.LINK}, "Jobs use no other site"
    ),
    RestrictionKind.NO_CROSS_SITE_CHECKPOINT: Kind(
        _QUEUE | {ScopeKind.SITE, ScopeKind.LINK}, "Checkpoints do not leave the site"
    ),
    RestrictionKind.DRAIN: Kind(_PLACES, "Jobs are moved away from here, and none starts"),
    RestrictionKind.PREFER_AWAY: Kind(_PLACES, "Jobs are placed elsewhere where they fit"),
    RestrictionKind.LINK_SHARE: Kind(
        frozenset({ScopeKind.LINK}),
        "Jobs use at most this share of the link",
        unit="share",
        most=1.0,
    ),
    RestrictionKind.HOLD_FOR_REVIEW: Kind(
        _PLACES | _QUEUE | {ScopeKind.STORAGE}, "What would start here waits for a person"
    ),
}
#: The kinds that agents set on GPUs.
LIMITS = (RestrictionKind.POWER_CAP_W, RestrictionKind.CLOCK_CAP_MHZ)
#: The kinds that hosts and keepers of checkpoints hold running jobs to, and say so.
ON_HOSTS = (RestrictionKind.LINK_SHARE, RestrictionKind.NO_CROSS_SITE_CHECKPOINT)
#: The kinds that change what GPUs at work draw. Beside all others readings only happen to move.
ON_WHAT_RUNS = (
    *LIMITS, RestrictionKind.MAX_BATCH_SCALE, RestrictionKind.DRAIN, RestrictionKind.POWER_BUDGET_W,
)  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """A restriction as its owner wants it, in force until ``expires_at``.

    ``owner`` is who wants it: "rule:NAME", "playbook:RUN/STEP" or "user:NAME". ``cause`` says why,
    in a form that stays the same for as long as the reason does: what has the same owner, cause,
    kind and scope is the same restriction, renewed. ``most_of_site`` is the share of a site that
    its policy may restrict without a person, where people have agreed to another one than the
    setting's. ``starts_at`` is when it has to be met, for kinds that may be announced; None: at
    once.
    """

    kind: RestrictionKind
    scope: Scope
    value: float | None
    reason: str
    owner: str
    cause: str
    expires_at: datetime
    evidence: Mapping[str, Any] = field(default_factory=dict)
    most_of_site: float | None = None
    starts_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identifies it among live restrictions."""
        return self.owner, self.cause, self.kind.value, self.scope.kind.value, self.scope.name


class BadRestriction(ValueError):
    """An invalid restriction. Says which field is wrong, and the way out."""

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.hint = hint


def check(wanted: Wanted, fleet: FleetArrays, *, now: datetime) -> None:
    """Raise :class:`BadRestriction` where ``wanted`` is not valid on this fleet.

    Names of classes and jobs are not looked up.
    """
    _check_scope(wanted, fleet)
    _check_value(wanted)
    _check_floor(wanted, fleet)
    for name, most in (("reason", 500), ("owner", 200), ("cause", 300)):
        if not 0 < len(getattr(wanted, name)) <= most:
            raise BadRestriction(name, f"give 1 to {most} characters")
    if not now < wanted.expires_at <= now + LONGEST:
        raise BadRestriction(
            "expires_at",
            f"it has to end within {LONGEST.days} days from now, and not before now",
            "a restriction that is to go on is extended before it ends",
        )
    _check_start(wanted)


def _check_scope(wanted: Wanted, fleet: FleetArrays) -> None:
    allowed = KINDS[wanted.kind].scopes
    if wanted.scope.kind not in allowed:
        raise BadRestriction(
            "scope.kind",
            f"{wanted.kind} cannot be on a {wanted.scope.kind.replace('_', ' ')}",
            f"choose one of {', '.join(sorted(allowed))}",
        )
    if wanted.scope.kind in _QUEUE:
        if not 0 < len(wanted.scope.name) <= MOST_NAME:
            raise BadRestriction("scope.name", f"give 1 to {MOST_NAME} characters")
        return
    try:
        row_of(fleet, wanted.scope)
    except UnknownScope as exc:
        raise BadRestriction("scope.name", str(exc), "names are those of the inventory") from exc


def _check_value(wanted: Wanted) -> None:
    kind, value = KINDS[wanted.kind], wanted.value
    if not kind.takes_value:
        if value is not None:
            raise BadRestriction("value", f"{wanted.kind} takes no value", "leave it out")
        return
    bounds = f"give {kind.unit} from {kind.least:g} to {kind.most:g}"
    if value is None or not math.isfinite(value) or not kind.least <= value <= kind.most:
        raise BadRestriction("value", f"{wanted.kind} needs a value within its bounds", bounds)
    if kind.is_whole and value != int(value):
        raise BadRestriction("value", f"{wanted.kind} counts {kind.unit}", "give a whole number")


def _check_start(wanted: Wanted) -> None:
    if wanted.starts_at is None:
        return
    if not KINDS[wanted.kind].may_start_later:
        may = ", ".join(kind for kind, about in KINDS.items() if about.may_start_later)
        raise BadRestriction(
            "starts_at",
            f"{wanted.kind} begins at once",
            f"leave it out: it is for {may}",
        )
    if wanted.starts_at >= wanted.expires_at:
        raise BadRestriction("starts_at", "it has to begin before it ends", "give an earlier time")


def _check_floor(wanted: Wanted, fleet: FleetArrays) -> None:
    """Refuse a cap that some GPU in its scope cannot be brought to."""
    if wanted.kind not in LIMITS or wanted.value is None:
        return
    floors = _floor_by_node(fleet, wanted.kind)[nodes_in(fleet, wanted.scope)]
    floor = floors.max(initial=-1.0)
    if floor < 0:
        raise BadRestriction("scope.name", f"there is no GPU in {wanted.scope}")
    if wanted.value < floor:
        unit = KINDS[wanted.kind].unit
        raise BadRestriction(
            "value",
            f"{wanted.value:g} {unit} is below what a {_model_at(floor, wanted, fleet)} can be"
            " brought to",
            f"give at least {math.ceil(floor):g} {unit}, or drain the place instead",
        )


def _floor_by_gpu(fleet: FleetArrays, kind: RestrictionKind) -> NDArray[np.float64]:
    gpus = fleet.gpus
    if kind is RestrictionKind.POWER_CAP_W:
        return np.nan_to_num(np.fmax(gpus.idle_w, LEAST_POWER_SHARE * gpus.rated_w))
    return np.nan_to_num(LEAST_CLOCK_SHARE * gpus.sm_max_mhz)


@lru_cache(maxsize=4)
def _floor_by_node(fleet: FleetArrays, kind: RestrictionKind) -> NDArray[np.float64]:
    """Return the highest floor of the GPUs of each node, -1 where it has none."""
    floors = np.full(len(fleet.nodes), -1.0)
    np.maximum.at(floors, fleet.gpus.node, _floor_by_gpu(fleet, kind))
    return floors


def _model_at(floor: float, wanted: Wanted, fleet: FleetArrays) -> str:
    here = np.flatnonzero(nodes_in(fleet, wanted.scope)[fleet.gpus.node])
    worst = here[(_floor_by_gpu(fleet, wanted.kind)[here] == floor).argmax()]
    return str(fleet.models.names[fleet.gpus.model[worst]])


def gpus_in(fleet: FleetArrays, scope: Scope) -> NDArray[np.bool_]:
    """Say of each GPU whether it is in ``scope``. Raises UnknownScope."""
    if scope.kind is ScopeKind.GPU:
        found = np.zeros(len(fleet.gpus), dtype=bool)
        found[row_of(fleet, scope)] = True
        return found
    return nodes_in(fleet, scope)[fleet.gpus.node]
