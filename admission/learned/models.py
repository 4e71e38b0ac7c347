"""Statistics of cycles: draws of attempts, draw profiles of images, calibration of estimates."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from accounts.models import User
from admission.core.cycle.calibration import Given
from admission.core.throughput import Unit
from admission.jobs.models import Attempt, Phase, Project

__all__ = [
    "Cycle",
    "Draw",
    "DrawProfile",
    "StartCalibration",
    "StartForecast",
    "Throughput",
    "UserUse",
]


class Cycle(models.Model):
    """One row: the number of the last cycle.

    A cycle commits what it admits only if no other has done so since it looked at the fleet.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField(default=0)
    at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="learned_cycle_one_row")]

    def __str__(self) -> str:
        return str(self.number)


class Draw(models.Model):
    """The measured draw of an attempt on each of its nodes, in the order of its placement.

    ``seconds`` are float32, nodes by bins: how long it drew how much, as
    ``admission.core.allocation.reservation`` counts it. ``p99_w`` and ``read_s`` are made of them,
    for all who only read. So are ``mean_w``, ``high_w``, ``deviation_w`` and ``samples``, with the
    profile of its image besides: ``admission.core.allocation.joint.Learned``.
    """

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="draw")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    image = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    seconds = models.BinaryField()
    #: per GPU, hosts included
    p99_w = ArrayField(models.FloatField())
    read_s = ArrayField(models.FloatField())
    mean_w = ArrayField(models.FloatField(), default=list)
    high_w = ArrayField(models.FloatField(), default=list)
    deviation_w = ArrayField(models.FloatField(), default=list)
    samples = ArrayField(models.FloatField(), default=list)
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.attempt)


class Throughput(models.Model):
    """What an elastic phase did in a second on so many GPUs, over its attempts of that size.

    ``admission.core.throughput.Measured``; all rows of a phase are in the same unit.
    """

    phase = models.ForeignKey(Phase, on_delete=models.CASCADE, related_name="throughputs")
    gpus = models.PositiveIntegerField()
    unit = models.CharField(max_length=10, choices=[(each.value, each.value) for each in Unit])
    per_s = models.FloatField()
    for_s = models.FloatField(help_text="For how long it was measured, s")
    seen_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["phase", "gpus"], name="throughput_of_size"),
        ]

    def __str__(self) -> str:
        return f"{self.phase} on {self.gpus}: {self.per_s:g} {self.unit}/s"


class UserUse(models.Model):
    """What one user has used of the fleet for one project: what it was at ``used_at``."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    user = models.CharField(max_length=150, help_text="As jobs name who submitted them")
    used_gpu_s = models.FloatField(default=0.0, help_text="GPU seconds, older ones counting less")
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "user"], name="user_use_of_project"),
        ]

    def __str__(self) -> str:
        return f"{self.user} for {self.project_id}"

    @property
    def key(self) -> tuple[int, str]:
        return self.project_id, self.user


class DrawProfileQuerySet(models.QuerySet["DrawProfile"]):
    def visible_to(self, user: User) -> DrawProfileQuerySet:
        """Profiles of the projects whose jobs ``user`` sees."""
        return self.filter(project__in=Project.objects.visible_to(user))


class DrawProfile(models.Model):
    """The draw of a project's ended attempts with one image on one model of GPU.

    ``seconds`` are as in :class:`Draw`, in one row; ``run_shares`` are the shares of their walltime
    that the last of them ran for.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="draw_profiles")
    image = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    seconds = models.BinaryField()
    run_shares = ArrayField(models.FloatField(), default=list)
    updated_at = models.DateTimeField()

    objects = DrawProfileQuerySet.as_manager()

    class Meta:
        ordering = ["project__name", "image", "model"]
        constraints = [
            models.UniqueConstraint(fields=["project", "image", "model"], name="draw_profile"),
        ]

    def __str__(self) -> str:
        return f"{self.project} {self.image or 'no image'} on {self.model}"


class StartForecast(models.Model):
    """When a phase was first estimated to begin, and when it did: seconds from ``made_at``.

    ``drawn_s`` are 10, 50 and 90 % of its starts in the futures that were drawn.
    """

    phase = models.ForeignKey(Phase, on_delete=models.CASCADE, related_name="start_forecasts")
    made_at = models.DateTimeField()
    gpus = models.PositiveIntegerField(default=1)
    drawn_s = ArrayField(models.FloatField(), default=list)
    p10_s = models.FloatField()
    p50_s = models.FloatField()
    p90_s = models.FloatField()
    #: null: it has not begun yet
    began_s = models.FloatField(null=True)

    class Meta:
        constraints = [
            # The first estimate of a wait counts: a later one knows more.
            models.UniqueConstraint(
                fields=["phase"], condition=Q(began_s=None), name="forecast_one_open"
            ),
        ]
        indexes = [models.Index(fields=["-made_at"], name="forecast_made")]

    def __str__(self) -> str:
        return f"{self.phase} in {self.p10_s:.0f} to {self.p90_s:.0f} s"

    @property
    def drawn(self) -> Given:
        return Given(self.gpus, *self.drawn_s)


class StartCalibration(models.Model):
    """One row: the errors of such estimates (``admission.core.cycle.calibration.Calibration``)."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    document = models.JSONField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="start_calibration_one_row"),
        ]

    def __str__(self) -> str:
        return f"{self.document['within']} of {self.document['starts']}"
