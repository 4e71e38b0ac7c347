"""Reasons for which a job does not run: stable tokens, in order of precedence, with numbers."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from policies.scopes import Scope


class ReasonToken(enum.StrEnum):
    """Why a job is not running. The order of the members is that of precedence."""

    #: its specification breaks the contract, or what it names is gone
    SPEC_INVALID = "SpecInvalid"
    #: somebody holds it, or a policy wants it looked at
    ON_HOLD = "OnHold"
    #: what it waits for can never come about any more
    DEPENDENCY_NEVER_MET = "DependencyNeverMet"
    #: a phase or job before it has not come as far as it is to yet
    DEPENDENCY_PENDING = "DependencyPending"
    #: an artifact that it takes is not recorded yet, or not where it may run; of what it promotes a
    #: copy is missing
    ARTIFACT_PENDING = "ArtifactPending"
    #: it agreed to wait, and a later hour is cheaper or cleaner
    POWER_PREFERENCE = "PowerPreference"
    #: its project has used up what it may have
    QUOTA_EXCEEDED = "QuotaExceeded"
    #: a restriction in force keeps it out everywhere that it could go
    RESTRICTED = "Restricted"
    #: its walltime runs into maintenance, or into what is booked for another project
    BOOKED = "Booked"
    #: what would have to be known is not known freshly enough
    TELEMETRY_STALE = "TelemetryStale"
    #: no GPU of a model that it takes is in the inventory where it may go
    HARDWARE_MISMATCH = "HardwareMismatch"
    #: no cooling of a kind that it takes
    COOLING_MISMATCH = "CoolingMismatch"
    #: not even an empty fleet has what it wants close enough together
    LOCALITY_UNSATISFIABLE = "LocalityUnsatisfiable"
    #: too few GPUs are free
    GPU_SHORTAGE = "GpuShortage"
    #: enough GPUs are free, and not close enough together
    TOPOLOGY_UNSATISFIABLE = "TopologyUnsatisfiable"
    RACK_POWER = "RackPowerHeadroom"
    FEED_POWER = "FeedPowerHeadroom"
    #: the half of an A/B pair that is left would carry too much
    FEED_REDUNDANCY = "FeedRedundancy"
    SITE_POWER = "SitePowerHeadroom"
    THERMAL = "ThermalHeadroom"
    COOLING_CAPACITY = "CoolingCapacity"
    LINK = "LinkHeadroom"
    STORAGE = "StorageHeadroom"
    #: a restriction or its class lets only so many run at once
    CONCURRENCY_CAP = "ConcurrencyCap"
    #: others have just begun in the same cooling zone, whose heat is still to come
    STAGGERED_START = "StaggeredStart"
    #: what it needs goes to somebody ahead of it
    BEHIND_HIGHER_PRIORITY = "BehindHigherPriority"
    #: what it needs is kept for somebody who has waited for long
    BACKFILL_RESERVATION = "BackfillReservation"


PRECEDENCE: dict[ReasonToken, int] = {token: rank for rank, token in enumerate(ReasonToken)}


@dataclass(frozen=True)
class Reason:
    """One reason, with the need, the supply, and the shortage between them, in ``unit``.

    ``scope`` is where; None where it is nowhere in particular. ``evidence`` says what the numbers
    rest on, such as the time of the reading or the ids of restrictions.
    """

    token: ReasonToken
    need: float
    have: float
    unit: str
    scope: Scope | None
    sentence: str
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> float:
        return max(self.need - self.have, 0.0)


def dominant(reasons: Iterable[Reason]) -> Reason:
    """Return the first reason in order of precedence. Raises ValueError where there is none."""
    return min(reasons, key=lambda reason: PRECEDENCE[reason.token])
