"""Prometheus metrics of the last hour that was closed: a few series for each site."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Gauge

from admission.core.energy.amounts import MJ_PER_J
from admission.energy.models import SiteHour

__all__ = ["show"]

# Whichever worker closed last is right.
ENERGY = Gauge(
    "headroom_energy_hour_joules",
    "Energy of the last closed hour of a site by part; parts add up to what its meter tells.",
    ["site", "part"],
    multiprocess_mode="mostrecent",
)
OVERHEAD = Gauge(
    "headroom_energy_hour_overhead_joules",
    "Of that, what the site drew beside its IT.",
    ["site", "basis"],
    multiprocess_mode="mostrecent",
)
COVERED = Gauge(
    "headroom_energy_hour_covered_ratio",
    "Share of GPU time that was read in the last closed hour.",
    ["site"],
    multiprocess_mode="mostrecent",
)
CARBON = Gauge(
    "headroom_energy_carbon_grams_per_kwh",
    "Carbon intensity of the last closed hour, CO2e; absent where it is not known.",
    ["site"],
    multiprocess_mode="mostrecent",
)
CLOSED_AT = Gauge(
    "headroom_energy_hour_start_seconds",
    "Start of the last closed hour, Unix time.",
    multiprocess_mode="mostrecent",
)
_PARTS = ("jobs", "idle", "unmanaged", "residual")


def show(rows: Iterable[SiteHour]) -> None:
    """Show the rows of one hour."""
    for row in rows:
        for part in _PARTS:
            ENERGY.labels(row.site, part).set(getattr(row, f"{part}_mj") / MJ_PER_J)
        basis = SiteHour.OverheadBasis(row.basis).name.lower()
        OVERHEAD.labels(row.site, basis).set(row.overhead_mj / MJ_PER_J)
        if row.gpu_ms:
            COVERED.labels(row.site).set(row.covered_ms / row.gpu_ms)
        if row.carbon_g_per_kwh is not None:
            CARBON.labels(row.site).set(row.carbon_g_per_kwh)
        CLOSED_AT.set(row.hour.timestamp())
