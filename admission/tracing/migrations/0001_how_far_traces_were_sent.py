"""How far traces of jobs were sent."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar = []

    operations: ClassVar = [
        migrations.CreateModel(
            name="TracedUntil",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("ended_at", models.DateTimeField()),
                (
                    "job",
                    models.BigIntegerField(help_text="Its id; 0: none yet, all before ended_at"),
                ),
            ],
        ),
    ]
