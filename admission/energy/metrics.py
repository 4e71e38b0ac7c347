"""Prometheus metrics of the last hour that was closed: a few series for each site."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import Gauge

from admission.core.energy.amounts import MJ_PER_J
from admission.core.energy.budgets import Standing
from admission.energy.demand import Month
from admission.energy.models import SiteHour

__all__ = ["show", "show_budget", "show_demand"]

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
BUDGET = Gauge(
    "headroom_budget_ratio",
    "Share of a project's budget that is used, and that is forecast by the end of its period; NaN "
    "where it is over, or not known.",
    ["budget", "kind"],
    multiprocess_mode="mostrecent",
)
PEAK = Gauge(
    "headroom_demand_peak_watts",
    "Greatest mean power of a site in the calendar month that goes on, over the interval of its "
    "tariff; NaN before one is closed.",
    ["site"],
    multiprocess_mode="mostrecent",
)
CHARGE = Gauge(
    "headroom_demand_charge",
    "Demand charge of a site for that peak, in ENERGY_CURRENCY.",
    ["site"],
    multiprocess_mode="mostrecent",
)
NEXT_KW = Gauge(
    "headroom_demand_next_kilowatt",
    "What each kW above that peak would cost, in ENERGY_CURRENCY; NaN: nothing is stated now.",
    ["site"],
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


def show_budget(budget: int, stands: Standing | None) -> None:
    """Show how a budget stands; None: it is over. By its number: projects are not for everybody."""
    used = math.nan if stands is None else stands.share
    ahead = math.nan if stands is None or stands.forecast_share is None else stands.forecast_share
    BUDGET.labels(str(budget), "used").set(used)
    BUDGET.labels(str(budget), "forecast").set(ahead)


def show_demand(months: Iterable[Month]) -> None:
    """Show how the demand charges of the months that go on stand."""
    for month in months:
        peak, next_kw = month.peak, month.next_kw
        PEAK.labels(month.site).set(math.nan if peak is None else peak.mean_w)
        CHARGE.labels(month.site).set(0.0 if peak is None else peak.charge)
        NEXT_KW.labels(month.site).set(math.nan if next_kw is None else next_kw)
