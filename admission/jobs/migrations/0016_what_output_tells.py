"""Attempts keep what the end of their output says of how they failed."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("admission_jobs", "0015_jobs_by_end")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="attempt",
            name="told",
            field=models.JSONField(
                null=True,
                blank=True,
                editable=False,
                help_text="What its output says most of how it failed: kind, node, text, before_s",
            ),
        ),
    ]
