"""Reports of energy, and tariffs, in JSON."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.edge.parameters import MomentField
from admission.core.energy.budgets import Measure, Standing
from admission.core.energy.rates import MJ_PER_KWH
from admission.energy import budgets
from admission.energy.models import Budget, Tariff
from admission.energy.reports import Report, Row, total_of
from admission.jobs.models import Project
from fleet.models import Site

__all__ = [
    "BudgetAskSerializer", "BudgetSerializer", "EnergyReportSerializer", "TariffAskSerializer",
    "TariffSerializer", "flat", "told",
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


class TariffSerializer(serializers.ModelSerializer[Tariff]):
    """A tariff of a site. It holds until the next one of the site begins."""

    site = serializers.CharField(source="site.name")

    class Meta:
        model = Tariff
        fields = (
            "id", "site", "begins_at", "price_per_kwh", "demand_per_kw", "gpu_hour",
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
            "site", "begins_at", "price_per_kwh", "demand_per_kw", "gpu_hour",
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
