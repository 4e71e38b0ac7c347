"""What a restriction cost: time of GPUs, and the energy and the money that this comes to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection

from accounts import visibility
from accounts.models import User
from admission.core.energy.rates import MJ_PER_KWH
from admission.cycle.cordoning import OWNER as OF_SCHEDULERS
from admission.goodput.models import AccountedHour
from admission.jobs.models import Project
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.restrictions.spans import span_of
from telemetry.rollups.spec import HOUR_S

__all__ = ["Amount", "Cost", "NotKnown", "of_restriction"]

#: Why the account does not tell what a restriction cost, by its kind.
_NOT_TOLD = {
    RestrictionKind.CLOCK_CAP_MHZ: "clocks below a cap are no throttling at a power limit",
    RestrictionKind.POWER_BUDGET_W: "the controller chooses what to cap and pause for all budgets",
    RestrictionKind.MAX_BATCH_SCALE: "steps of a smaller batch are not told apart",
    RestrictionKind.LINK_SHARE: "waits for a link are told as synchronization or data wait",
    RestrictionKind.NO_CROSS_SITE_CHECKPOINT: "it takes no time of GPUs",
    RestrictionKind.PREFER_AWAY: "it holds nobody back",
}
_WAITS = "what waits is told by reason, and not by restriction"

# Rates stand beside the hour of the site. A project's GPUs draw the mean of its hour there.
_COST = """
SELECT coalesce(sum(us), 0), coalesce(sum(shared_us), 0),
       coalesce(sum(us * gpu_hour), 0) / 3.6e9,
       coalesce(sum(us) FILTER (WHERE gpu_hour IS NOT NULL), 0),
       coalesce(sum(mj), 0), coalesce(sum(us) FILTER (WHERE mj IS NOT NULL), 0),
       coalesce(sum(mj * price_per_kwh), 0) / 3.6e9,
       coalesce(sum(us) FILTER (WHERE mj IS NOT NULL AND price_per_kwh IS NOT NULL), 0)
FROM (
    SELECT it.us, it.shared_us, site.gpu_hour, site.price_per_kwh,
           it.us / 1000.0::float8 * (own.gpu_mj + own.host_mj + own.shared_mj + own.overhead_mj)
               / nullif(own.gpu_ms, 0) AS mj
    FROM admission_goodput_hourrestriction AS it
    LEFT JOIN admission_energy_sitehour AS site ON site.hour = it.hour AND site.site = it.site
    LEFT JOIN admission_energy_projecthour AS own
        ON own.hour = it.hour AND own.site = it.site AND own.project = it.project
    WHERE it.restriction_id = %s AND (%s::text[] IS NULL OR it.project = ANY(%s))
) AS priced
"""


class NotKnown(Exception):
    """The account does not tell what a restriction cost; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A sum, and the share of the time that it is known of; None: it is known of none."""

    value: float | None
    known: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a restriction took, in the hours of which there is an account.

    ``gpu_s`` are GPU-seconds: of a cap those that it held back, of a drain those that nobody held;
    ``shared_gpu_s`` of these while others asked for the same. ``kwh`` is what its projects' GPUs
    drew in that time, ``energy`` what these cost, ``gpu_hours`` the time at the price of a
    GPU-hour. Of the ``hours`` that it touched, ``missing`` are over and have no account, and
    ``open`` are not over. ``is_own``: of the reader's own projects alone.
    """

    hours: int
    missing: int
    open: int
    gpu_s: float
    shared_gpu_s: float
    kwh: Amount
    energy: Amount
    gpu_hours: Amount
    is_own: bool

    @property
    def money(self) -> float | None:
        """What it comes to, as far as that is known; None: nothing of it is."""
        known = [each.value for each in (self.energy, self.gpu_hours) if each.value is not None]
        return sum(known) if known else None

    @property
    def is_least(self) -> bool:
        """Whether it may have cost more than is known."""
        amounts = (self.kwh, self.energy, self.gpu_hours)
        return bool(self.missing or self.open) or any((each.known or 0.0) < 1.0 for each in amounts)


def of_restriction(row: Restriction, user: User, now: datetime) -> Cost:
    """Return what a restriction cost, of what ``user`` may know. Three queries at most.

    Raises :class:`NotKnown` where the account does not tell.
    """
    if row.effect_at is None:
        raise NotKnown("it never had an effect")
    if not _is_told(row):
        raise NotKnown(_NOT_TOLD.get(RestrictionKind(row.kind), _WAITS))
    own = None
    if not visibility.sees_all(user):
        own = list(Project.objects.visible_to(user).values_list("name", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(_COST, [row.pk, own, own])
        us, shared_us, gpu_hours, priced_us, mj, read_us, energy, paid_us = cursor.fetchone()

    def amount(value: float, known_us: int) -> Amount:
        return Amount(value=value if known_us else None, known=float(known_us / us) if us else None)

    return Cost(
        gpu_s=float(us) / 1e6, shared_gpu_s=float(shared_us) / 1e6,
        kwh=amount(mj / MJ_PER_KWH, read_us), energy=amount(energy, paid_us),
        gpu_hours=amount(gpu_hours, priced_us), is_own=own is not None, **_hours(row, now),
    )  # fmt: skip


def _is_told(row: Restriction) -> bool:
    """Say whether the account tells what it took: of caps on power, and of what drains nodes."""
    if row.kind in (RestrictionKind.POWER_CAP_W, RestrictionKind.DRAIN):
        return True
    return row.kind == RestrictionKind.NO_NEW_LAUNCHES and row.owner.startswith(OF_SCHEDULERS)


def _hours(row: Restriction, now: datetime) -> dict[str, int]:
    """Return the hours that a restriction touched, and how much of them there is no account of."""
    start, end = span_of(row, now)
    end = now.timestamp() if end is None else end
    first, last = int(start // HOUR_S), max(int(-(-end // HOUR_S)), int(start // HOUR_S) + 1)
    over = min(last, int(now.timestamp() // HOUR_S))
    told = AccountedHour.objects.filter(
        hour__gte=datetime.fromtimestamp(first * HOUR_S, UTC),
        hour__lt=datetime.fromtimestamp(over * HOUR_S, UTC),
        has_restrictions=True,
    ).count()
    return {"hours": last - first, "missing": max(over - first, 0) - told, "open": last - over}
