"""The ledger of energy by hour: sites, racks and nodes, projects and jobs; and its rates.

Names, not keys, in the ledger: rows outlive what they are about. Amounts are whole millijoules, so
that sums over any of them agree.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

from accounts import visibility
from accounts.models import User
from admission.core.energy.budgets import Measure, period_of
from admission.core.energy.closing import Basis
from admission.core.energy.peaks import BINS, INTERVALS_MIN
from admission.core.energy.rates import Terms
from admission.jobs.models import Project
from fleet.models import Site, validators
from telemetry.rollups.spec import HOUR_S

__all__ = [
    "Budget",
    "ClosedHour",
    "GridHour",
    "JobHour",
    "PlaceHour",
    "ProjectHour",
    "SiteHour",
    "Tariff",
]


class ClosedHour(models.Model):
    """An hour that was closed, whether anything was read in it or not."""

    hour = models.DateTimeField(unique=True, help_text="Its start")
    closed_at = models.DateTimeField()
    again_at = models.DateTimeField(
        null=True,
        db_index=True,
        help_text="When it is to be closed once more; empty: it is settled",
    )

    class Meta:
        ordering: ClassVar = ["hour"]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}"


class HourOfPlace(models.Model):
    """What a place drew in an hour, mJ, and how much of its GPUs' time was read, ms."""

    hour = models.DateTimeField()
    site = models.CharField(max_length=200)
    jobs_mj = models.BigIntegerField()
    idle_mj = models.BigIntegerField()
    unmanaged_mj = models.BigIntegerField()
    residual_mj = models.BigIntegerField(help_text="Total less parts: what no part explains")
    bridged_mj = models.BigIntegerField(help_text="Of the parts, what stands for gaps in readings")
    gpu_ms = models.BigIntegerField(help_text="Time of its GPUs")
    covered_ms = models.BigIntegerField(help_text="Of that, what was read")

    class Meta:
        abstract = True

    @property
    def whole_mj(self) -> int:
        """All that it drew."""
        return self.jobs_mj + self.idle_mj + self.unmanaged_mj + self.residual_mj


class SiteHour(HourOfPlace):
    """A site, with what it draws beside its IT. Jobs, idle and unmanaged have their share of it."""

    class OverheadBasis(models.IntegerChoices):
        """What ``overhead_mj`` goes by."""

        NONE = Basis.NONE, "not known"
        MEASURED = Basis.MEASURED, "measured"
        COOLING = Basis.COOLING, "meters of its cooling"
        STATED = Basis.STATED, "stated"
        CONTRADICTED = Basis.CONTRADICTED, "its meter reads less than its IT"

    it_mj = models.BigIntegerField()
    overhead_mj = models.BigIntegerField(help_text="Beside its IT: cooling, losses")
    by_difference_mj = models.BigIntegerField(
        help_text="Of hosts that are what the meter of their node leaves"
    )
    basis = models.SmallIntegerField(choices=OverheadBasis.choices)
    it_metered = models.BooleanField(help_text="All of its IT has meters that were read")
    facility_metered = models.BooleanField(help_text="So have its utility feeds")
    carbon_g_per_kwh = models.FloatField(null=True, help_text="g CO2e; empty: not known")
    carbon_source = models.CharField(
        max_length=15, blank=True, default="", db_default="", help_text="Whose figure that is"
    )
    price_per_kwh = models.FloatField(null=True)
    gpu_hour = models.FloatField(null=True, help_text="Price of an hour of a GPU that is held")
    five_minutes_mj = ArrayField(
        models.BigIntegerField(),
        size=BINS,
        default=list,
        db_default=[],
        help_text="Its energy by five minutes; empty: that is not known",
    )
    demand = models.FloatField(
        default=0.0,
        db_default=0.0,
        help_text="The month's demand charge, if its peak is in this hour",
    )
    peak_at = models.DateTimeField(null=True, help_text="Then: where the peak begins")
    peak_s = models.PositiveSmallIntegerField(null=True, help_text="How long it is, s")
    peak_w = models.FloatField(null=True, help_text="Its mean power")
    peak_mj = models.BigIntegerField(
        null=True, help_text="Of this energy its users have shares; empty: of that of the hour"
    )

    class Meta:
        ordering: ClassVar = ["hour", "site"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", "site"], name="energy_site_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.site} {self.hour:%Y-%m-%d %H}"

    @property
    def peak(self) -> tuple[datetime, int, float] | None:
        """The month's peak: its start, its length, s, and its mean power, W; None: is elsewhere."""
        if self.peak_at is None or self.peak_s is None or self.peak_w is None:
            return None
        return self.peak_at, self.peak_s, self.peak_w


class PlaceHour(HourOfPlace):
    """A rack or a node: IT alone."""

    class Kind(models.TextChoices):
        RACK = "rack", "Rack"
        NODE = "node", "Node"

    kind = models.CharField(max_length=4, choices=Kind.choices)
    place = models.CharField(max_length=401, help_text="A node's name, or site/rack")
    shared_mj = models.BigIntegerField(help_text="Of nodes without GPUs: switches, storage")
    metered = models.BooleanField(help_text="A meter of its own was read")
    peak_mj = models.BigIntegerField(null=True, help_text="Of a rack: of it, in the month's peak")

    class Meta:
        ordering: ClassVar = ["hour", "kind", "place"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", "kind", "place"], name="energy_place_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.place} {self.hour:%Y-%m-%d %H}"

    @property
    def whole_mj(self) -> int:
        """All that it drew."""
        return super().whole_mj + self.shared_mj


class HourOfJobs(models.Model):
    """What jobs came to at a site in an hour, mJ, by part, and the time of GPUs that they held."""

    hour = models.DateTimeField()
    site = models.CharField(max_length=200)
    project = models.CharField(max_length=60)
    gpu_mj = models.BigIntegerField()
    host_mj = models.BigIntegerField()
    shared_mj = models.BigIntegerField()
    overhead_mj = models.BigIntegerField()
    gpu_ms = models.BigIntegerField(help_text="By share of a GPU for slices")
    unread_ms = models.BigIntegerField(
        null=True, help_text="Of it, of which nothing tells what was drawn; empty: not told"
    )
    peak_mj = models.BigIntegerField(null=True, help_text="Of it, in the month's peak")

    class Meta:
        abstract = True

    @property
    def whole_mj(self) -> int:
        """All that they came to."""
        return self.gpu_mj + self.host_mj + self.shared_mj + self.overhead_mj


class ProjectHourQuerySet(models.QuerySet["ProjectHour"]):
    def visible_to(self, user: User) -> ProjectHourQuerySet:
        """Those of projects that ``user`` may know of."""
        if visibility.sees_all(user):
            return self
        return self.filter(project__in=Project.objects.visible_to(user).values("name"))


class ProjectHour(HourOfJobs):
    """The jobs of a project."""

    objects = ProjectHourQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["hour", "site", "project"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", "site", "project"], name="energy_project_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.project} {self.site} {self.hour:%Y-%m-%d %H}"


class JobHourQuerySet(models.QuerySet["JobHour"]):
    def visible_to(self, user: User) -> JobHourQuerySet:
        """Those of jobs that ``user`` may see by name."""
        if visibility.sees_all(user):
            return self
        return self.filter(project__in=Project.objects.visible_to(user).values("name"))


class JobHour(HourOfJobs):
    """One job."""

    job = models.CharField(max_length=200)

    objects = JobHourQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["hour", "job", "site"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "hour", "site"], name="energy_job_hour"),
        ]
        indexes: ClassVar = [models.Index(fields=["hour", "project"], name="energy_job_of_hour")]

    def __str__(self) -> str:
        return f"{self.job} {self.site} {self.hour:%Y-%m-%d %H}"


class Tariff(models.Model):
    """What energy costs, emits and takes beside its IT at a site, from a date on.

    Rows are added and never changed: the next one ends it. Money is in ``ENERGY_CURRENCY``.
    """

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="tariffs")
    begins_at = models.DateTimeField(help_text="A whole hour; it holds until the next one begins")
    price_per_kwh = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(1000.0, -1000.0),
        help_text="Where the grid tells none",
    )
    demand_per_kw = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(1e6),
        help_text="Of the highest mean of a calendar month",
    )
    demand_interval_min = models.PositiveSmallIntegerField(
        default=15,
        db_default=15,
        choices=[(minutes, f"{minutes} min") for minutes in INTERVALS_MIN],
        help_text="Over which that mean is",
    )
    gpu_hour = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(1e6),
        help_text="For each hour that a GPU is held",
    )
    carbon_g_per_kwh = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(5000.0),
        help_text="g CO2e, where the grid tells none",
    )
    pue = models.FloatField(
        null=True,
        blank=True,
        validators=validators.quantity(10.0, 1.0),
        help_text="Where it is not measured",
    )
    zone = models.CharField(
        max_length=40,
        blank=True,
        validators=[RegexValidator(r"^[A-Za-z0-9-]*\Z")],
        help_text="Of the grid, as Electricity Maps calls it, such as DE",
    )
    is_spot = models.BooleanField(
        default=False,
        db_default=False,
        help_text="It pays what the day-ahead market of its zone asks for by the hour",
    )
    made_by = models.CharField(max_length=200, editable=False)
    made_at = models.DateTimeField(editable=False)

    class Meta:
        ordering: ClassVar = ["site", "begins_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["site", "begins_at"], name="energy_tariff_once"),
        ]

    def __str__(self) -> str:
        return f"{self.site} from {self.begins_at:%Y-%m-%d %H:%M}"

    def clean(self) -> None:
        """Refuse prices of a market that is not named."""
        if self.is_spot and not self.zone:
            raise ValidationError({"zone": "name the grid whose day-ahead prices it pays"})

    def terms(self) -> Terms:
        return Terms(
            begins_at=self.begins_at, price_per_kwh=self.price_per_kwh,
            demand_per_kw=self.demand_per_kw, demand_interval_min=self.demand_interval_min,
            gpu_hour=self.gpu_hour, carbon_g_per_kwh=self.carbon_g_per_kwh, pue=self.pue,
        )  # fmt: skip


class BudgetQuerySet(models.QuerySet["Budget"]):
    def visible_to(self, user: User) -> BudgetQuerySet:
        """Those of projects that ``user`` may know of."""
        return self.filter(project__in=Project.objects.visible_to(user))

    def in_force(self, now: datetime) -> BudgetQuerySet:
        """Those that nobody ended, and whose range is not over."""
        not_over = models.Q(ends_at=None) | models.Q(ends_at__gt=now)
        return self.filter(not_over, ended_at=None, begins_at__lte=now)


class Budget(models.Model):
    """What a project may come to in a calendar month (UTC), or in a range of hours.

    It holds nothing back: it is told, with warnings. Rows are added and ended, never changed.
    """

    class Of(models.TextChoices):
        KWH = Measure.KWH.value, "kWh"
        CARBON_KG = Measure.CARBON_KG.value, "kg CO2e"
        MONEY = Measure.MONEY.value, "money"

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="budgets")
    measure = models.CharField(max_length=10, choices=Of.choices)
    amount = models.FloatField(
        validators=[*validators.quantity(1e15), MinValueValidator(1e-6)],
        help_text="kWh, kg CO2e or money, of each period",
    )
    begins_at = models.DateTimeField(help_text="A whole hour of UTC; of a monthly one a month's")
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="A whole hour of UTC; empty: it is of each calendar month"
    )
    warn_at = ArrayField(
        models.FloatField(validators=[MinValueValidator(0.01), MaxValueValidator(10.0)]),
        size=10,
        help_text="Shares of it at which an incident is opened",
    )
    made_by = models.CharField(max_length=200, editable=False)
    made_at = models.DateTimeField(editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = BudgetQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["-id"]

    def __str__(self) -> str:
        return f"{self.project} {self.amount:g} {self.measure}"

    def clean(self) -> None:
        """Refuse periods that are no whole hours, months that begin in the middle, and no range."""
        if validators.lacks(self):
            return
        for name in ("begins_at", "ends_at"):
            at = getattr(self, name)
            if at is not None and at.timestamp() % HOUR_S:
                raise ValidationError({name: "give a whole hour of UTC: energy is by the hour"})
        start, _ = period_of(self.begins_at, None, self.begins_at)
        if self.ends_at is None and start != self.begins_at:
            raise ValidationError({"begins_at": f"it is monthly: give {start:%Y-%m-%dT%H:%MZ}"})
        if self.ends_at is not None and self.ends_at <= self.begins_at:
            raise ValidationError({"ends_at": "it is not after begins_at"})


class GridHour(models.Model):
    """What the grid of a site tells of an hour; of one that is ahead, what it expects."""

    class Source(models.TextChoices):
        FILE = "file", "file"
        ELECTRICITY_MAPS = "electricitymaps", "Electricity Maps"

    site = models.ForeignKey(Site, on_delete=models.CASCADE, related_name="grid_hours")
    hour = models.DateTimeField(help_text="Its start")
    carbon_g_per_kwh = models.FloatField(null=True)
    price_per_kwh = models.FloatField(null=True)
    source = models.CharField(max_length=15, choices=Source.choices)
    is_forecast = models.BooleanField(default=False)

    class Meta:
        ordering: ClassVar = ["site", "hour"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["site", "hour"], name="energy_grid_hour"),
        ]

    def __str__(self) -> str:
        return f"{self.site} {self.hour:%Y-%m-%d %H}"
