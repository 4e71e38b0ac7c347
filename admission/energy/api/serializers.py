"""Reports of energy, and tariffs, in JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.edge.parameters import MomentField
from admission.core.energy.budgets import Measure, Standing
from admission.core.energy.rates import MJ_PER_KWH
from admission.energy import budgets
from admission.energy.demand import Drawer, Month, MonthPeak
from admission.energy.models import Budget, Tariff
from admission.energy.reports import Report, Row, total_of
from admission.jobs.models import Project
from fleet.models import Site

__all__ = [
    "BudgetAskSerializer", "BudgetSerializer", "DemandChargesSerializer", "EnergyReportSerializer",
    "TariffAskSerializer", "TariffSerializer", "flat", "flat_demand", "told",
]  # fmt: skip


class EnergyRowSerializer(serializers.Serializer[dict[str, Any]]):
    """The energy of one thing. Its parts add up to ``energy_mj``."""

    name = serializers.CharField(help_text="Of an hour its start, UTC")
    energy_mj = serializers.IntegerField(help_text="Whole millijoules")
    kwh = serializers.FloatField()
    parts_mj = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Of projects and jobs gpu, host, shared, overhead; of places jobs, idle, "
        "unmanaged, residual, and of racks and nodes shared",
    )
    gpu_h = serializers.FloatField(help_text="Of jobs: held; of places: all GPU-hours")
    carbon_kg = serializers.FloatField(help_text="CO2e, of the energy whose rate is known")
    carbon_known = serializers.FloatField(help_text="That share of the energy", allow_null=True)
    money = serializers.FloatField(help_text="Of the energy whose price is known, and what is more")
    money_parts = serializers.DictField(
        child=serializers.FloatField(), help_text="energy, demand, gpu_hours"
    )
    price_known = serializers.FloatField(help_text="That share of the energy", allow_null=True)
    covered = serializers.FloatField(help_text="Share of GPU time that was read", allow_null=True)
    bridged = serializers.FloatField(
        help_text="Share of the energy that stands for gaps in readings", allow_null=True
    )
    metered = serializers.FloatField(
        help_text="Share of the energy that a meter of the place itself tells", allow_null=True
    )
    pue = serializers.FloatField(allow_null=True, help_text="null: neither measured nor stated")
    pue_basis = serializers.CharField(help_text="What the PUE goes by", allow_blank=True)


class EnergyReportSerializer(serializers.Serializer[dict[str, Any]]):
    """A report of whole hours. Rows add up to ``total``."""

    by = serializers.CharField()
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    hours = serializers.IntegerField(help_text="That are closed")
    newest = serializers.DateTimeField(allow_null=True, help_text="The last hour that is closed")
    own_projects = serializers.BooleanField(help_text="It is of the reader's projects alone")
    currency = serializers.CharField()
    total = EnergyRowSerializer()
    rows = EnergyRowSerializer(many=True)


def told(report: Report) -> dict[str, Any]:
    """Return a report as the API gives it."""
    return {
        "by": report.by.value, "start": report.start, "end": report.end, "hours": report.hours,
        "newest": report.newest, "own_projects": report.is_own,
        "currency": settings.ENERGY_CURRENCY, "total": _row(total_of(report.rows)),
        "rows": [_row(row) for row in report.rows],
    }  # fmt: skip


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name, "energy_mj": row.mj, "kwh": row.mj / MJ_PER_KWH,
        "parts_mj": row.parts_mj, "gpu_h": row.gpu_h,
        "carbon_kg": row.carbon_kg, "carbon_known": _share(row.carbon_mj, row.mj),
        "money": row.cost, "money_parts": row.money, "price_known": _share(row.price_mj, row.mj),
        "covered": _share(row.covered_ms, row.gpu_ms), "bridged": _share(row.bridged_mj, row.mj),
        "metered": _share(row.metered_mj, row.mj), "pue": row.pue, "pue_basis": row.basis,
    }  # fmt: skip


def _share(part: int | None, whole: int) -> float | None:
    return None if part is None or whole <= 0 else part / whole


def flat(report: dict[str, Any]) -> list[list[Any]]:
    """Return the lines of a report as CSV has them, with their names first."""
    parts = list(report["total"]["parts_mj"])
    money = list(report["total"]["money_parts"])
    plain = [
        name for name in map(str, EnergyRowSerializer().fields) if not name.endswith("parts_mj")
    ]
    plain = [name for name in plain if name != "money_parts"]
    head = [*plain, *(f"{name}_mj" for name in parts), *(f"{name}_money" for name in money)]
    lines = [
        [
            *(row[name] for name in plain),
            *(row["parts_mj"].get(name) for name in parts),
            *(row["money_parts"].get(name) for name in money),
        ]
        for row in report["rows"]
    ]
    return [head, *lines]


class DrawerSerializer(serializers.Serializer[Drawer]):
    """Who drew a part of a peak."""

    name = serializers.CharField(allow_blank=True)
    mean_w = serializers.FloatField()
    share = serializers.FloatField(help_text="Of the peak, and so of the charge")
    money = serializers.FloatField()


class MonthPeakSerializer(serializers.Serializer[MonthPeak]):
    """The greatest mean of a month so far. Projects and the rest add up to it."""

    at = serializers.DateTimeField(help_text="Where it begins")
    length_s = serializers.IntegerField(help_text="3600 where minutes of its hour are not there")
    mean_w = serializers.FloatField()
    charge = serializers.FloatField()
    is_shared_by_hour = serializers.BooleanField(
        help_text="What each drew is known of the hour that it is in alone"
    )
    bridged = serializers.FloatField(
        allow_null=True, help_text="Share of its hour's energy that stands for gaps in readings"
    )
    projects = DrawerSerializer(many=True)
    rest = DrawerSerializer(help_text="Idle and unmanaged work, and what no part explains")
    racks = DrawerSerializer(many=True, help_text="IT alone, the first 20")


class MonthSerializer(serializers.Serializer[Month]):
    """How the demand charge of a month stands at a site."""

    site = serializers.CharField()
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    hours = serializers.IntegerField(help_text="Of the month")
    past_hours = serializers.IntegerField(help_text="Of these, that are over")
    closed_hours = serializers.IntegerField(help_text="Of these, that are closed")
    hours_by_mean = serializers.IntegerField(
        help_text="Of these, that count by their mean: their minutes are not known"
    )
    covered = serializers.FloatField(
        allow_null=True, help_text="Share of GPU time that was read in closed hours"
    )
    peak = MonthPeakSerializer(allow_null=True)
    next_kw = serializers.FloatField(
        allow_null=True,
        help_text="What each kW above the peak costs from now on; null: the month does not go on, "
        "or no charge is stated now",
    )
    interval_min = serializers.IntegerField(allow_null=True, help_text="Over which means are now")


class DemandChargesSerializer(serializers.Serializer[dict[str, Any]]):
    """Demand charges of sites for a calendar month of each."""

    currency = serializers.CharField()
    sites = MonthSerializer(many=True)


_DEMAND_COLUMNS = (
    "site", "start", "end", "hours", "past_hours", "closed_hours", "hours_by_mean", "covered",
    "next_kw", "peak_at", "peak_s", "peak_w", "bridged", "charge", "kind", "name", "mean_w",
    "share", "money",
)  # fmt: skip


def flat_demand(months: Iterable[Month]) -> list[list[Any]]:
    """Return a line for each that drew a part of a peak, with their names first.

    Projects and the rest add up to the peak; racks are told beside them.
    """
    lines: list[list[Any]] = [[*_DEMAND_COLUMNS]]
    for month in months:
        peak = month.peak
        head = [getattr(month, name) for name in _DEMAND_COLUMNS[:9]]
        if peak is None:
            lines.append([*head, *[None] * (len(_DEMAND_COLUMNS) - len(head))])
            continue
        head += [peak.at, peak.length_s, peak.mean_w, peak.bridged, peak.charge]
        drawn = [*(("project", each) for each in peak.projects), ("rest", peak.rest)]
        drawn += [("rack", each) for each in peak.racks]
        lines += [[*head, kind, d.name, d.mean_w, d.share, d.money] for kind, d in drawn]
    return lines


class TariffSerializer(serializers.ModelSerializer[Tariff]):
    """A tariff of a site. It holds until the next one of the site begins."""

    site = serializers.CharField(source="site.name")

    class Meta:
        model = Tariff
        fields = (
            "id", "site", "begins_at", "price_per_kwh", "demand_per_kw", "demand_interval_min",
            "gpu_hour",
            "carbon_g_per_kwh", "pue", "zone", "is_spot", "made_by", "made_at",
        )  # fmt: skip
        read_only_fields = fields


class TariffAskSerializer(serializers.ModelSerializer[Tariff]):
    """A tariff that is to hold from an hour on. What is left out is not known from then on."""

    site = serializers.SlugRelatedField(slug_field="name", queryset=Site.objects.all())
    begins_at = MomentField()

    class Meta:
        model = Tariff
        fields = (
            "site", "begins_at", "price_per_kwh", "demand_per_kw", "demand_interval_min",
            "gpu_hour",
            "carbon_g_per_kwh", "pue", "zone", "is_spot",
        )  # fmt: skip
        #: whether it is there already is said by the action
        validators: tuple[Any, ...] = ()


class BudgetStandingSerializer(serializers.Serializer[Standing]):
    """How a budget stands in its period."""

    start = serializers.DateTimeField(help_text="Of the period")
    end = serializers.DateTimeField()
    used = serializers.FloatField(help_text="In closed hours, as far as rates are known")
    share = serializers.FloatField(help_text="Of the amount")
    forecast = serializers.FloatField(
        allow_null=True,
        help_text="By the period's end, at the mean of the last seven days; null: no hour is "
        "closed",
    )
    forecast_share = serializers.FloatField(allow_null=True)
    known = serializers.FloatField(
        allow_null=True, help_text="Share of the energy whose rate is known; null: none was used"
    )
    unread = serializers.FloatField(
        allow_null=True,
        help_text="Share of the time of its GPUs of which no reading tells what they drew: that is "
        "not in `used`; null: not told",
    )
    hours = serializers.IntegerField(help_text="Of the period")
    closed_hours = serializers.IntegerField(help_text="Of these, that are closed")
    open_hours = serializers.IntegerField(help_text="That are over and not closed, nor in `used`")
    is_least = serializers.BooleanField(help_text="More may have been used than is known")
    warned = serializers.FloatField(
        allow_null=True, help_text="The largest share to warn at that is used; null: none is"
    )


class BudgetSerializer(serializers.ModelSerializer[Budget]):
    """A budget of a project, and how it stands; null: it is not in force now."""

    project = serializers.CharField(source="project.name")
    unit = serializers.SerializerMethodField()
    standing = serializers.SerializerMethodField()

    class Meta:
        model = Budget
        fields = (
            "id", "project", "measure", "unit", "amount", "begins_at", "ends_at", "warn_at",
            "made_by", "made_at", "ended_at", "standing",
        )  # fmt: skip
        read_only_fields = fields

    def get_unit(self, row: Budget) -> str:
        return budgets.UNITS[Measure(row.measure)]

    @extend_schema_field(BudgetStandingSerializer(allow_null=True))
    def get_standing(self, row: Budget) -> Any:
        stands = self.context["standings"].get(row.pk)
        return None if stands is None else BudgetStandingSerializer(stands).data


class BudgetAskSerializer(serializers.ModelSerializer[Budget]):
    """A budget that is to hold from an hour on."""

    project = serializers.SlugRelatedField(slug_field="name", queryset=Project.objects.all())
    begins_at = MomentField()
    ends_at = MomentField(required=False, allow_null=True, default=None)
    warn_at = serializers.ListField(
        child=serializers.FloatField(min_value=0.01, max_value=10.0),
        max_length=10,
        default=[0.8, 1.0],
        help_text="Shares of it at which an incident is opened",
    )

    class Meta:
        model = Budget
        fields = ("project", "measure", "amount", "begins_at", "ends_at", "warn_at")
