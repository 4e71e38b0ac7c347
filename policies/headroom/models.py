"""Fits of GPUs and hosts to their readings, and scores of forecasts."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from fleet.models import Gpu, HardwareModel


class ThermalFit(models.Model):
    """Thermal resistance and capacitance of one GPU. Null where its readings do not determine them.

    ``fitted_at`` says when that was last tried.
    """

    gpu = models.OneToOneField(
        Gpu, on_delete=models.CASCADE, primary_key=True, related_name="thermal_fit"
    )
    resistance_c_per_w = models.FloatField(null=True)
    capacitance_j_per_c = models.FloatField(null=True)
    ambient_c = models.FloatField(null=True, help_text="Of what takes its heat, °C")
    trust = models.FloatField(default=0.0, help_text="0 to 1, by the error of the resistance")
    rmse_c = models.FloatField(null=True, help_text="How far readings lie from the fit, °C")
    fitted_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["fitted_at"], name="thermal_fit_at")]

    def __str__(self) -> str:
        return f"{self.gpu} at {self.fitted_at:%H:%M:%S}"


class HostFit(models.Model):
    """Power of nodes of one model besides their GPUs: ``idle_w + share · GPUs``."""

    model = models.OneToOneField(
        HardwareModel, on_delete=models.CASCADE, primary_key=True, related_name="host_fit"
    )
    idle_w = models.FloatField()
    share = models.FloatField(help_text="W for each W of the GPUs")
    spread_w = models.FloatField(help_text="Standard deviation of readings from the line, W")
    readings = models.IntegerField()
    fitted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.model} at {self.fitted_at:%H:%M:%S}"


class ForecastScore(models.Model):
    """How far forecasts of one kind of scope and one horizon were off, within one hour.

    ``histogram`` counts absolute errors by size, in the bins of ``policies.headroom.scores``.
    """

    kind = models.CharField(max_length=16)
    horizon_s = models.IntegerField()
    hour = models.DateTimeField()
    count = models.BigIntegerField(default=0)
    error_sum_w = models.FloatField(default=0.0, help_text="Forecast less what came, W, summed")
    load_sum_w = models.FloatField(default=0.0, help_text="What came, W, summed")
    off_sum_w = models.FloatField(default=0.0, db_default=0.0, help_text="Errors without sign, W")
    as_now_sum_w = models.FloatField(
        default=0.0, db_default=0.0, help_text="Those of the load as it was then, W"
    )
    shown = models.BigIntegerField(default=0, db_default=0, help_text="Better than as now")
    banded = models.BigIntegerField(default=0, db_default=0, help_text="With a band")
    covered = models.BigIntegerField(default=0, db_default=0, help_text="Of these: within it")
    histogram = ArrayField(models.BigIntegerField())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kind", "horizon_s", "hour"], name="forecast_score_key")
        ]
        indexes = [models.Index(fields=["hour"], name="forecast_score_hour")]

    def __str__(self) -> str:
        return f"{self.kind} {self.horizon_s} s at {self.hour:%Y-%m-%d %H}"
