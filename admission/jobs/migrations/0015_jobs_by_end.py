"""Jobs are asked for in the order in which they ended, for their traces: an index."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False

    dependencies: ClassVar = [("admission_jobs", "0014_energy_of_attempts")]

    operations: ClassVar = [
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                fields=["ended_at", "id"],
                condition=Q(ended_at__isnull=False),
                name="job_ended",
            ),
        ),
    ]
