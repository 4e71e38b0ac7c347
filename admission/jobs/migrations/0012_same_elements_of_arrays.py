from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admission_jobs", "0011_moves"),
    ]

    operations = [
        migrations.AddField(
            model_name="dependency",
            name="element",
            field=models.PositiveIntegerField(
                blank=True, help_text="That waits, of an array; null: all", null=True
            ),
        ),
        migrations.AlterField(
            model_name="dependency",
            name="state",
            field=models.CharField(
                choices=[
                    ("open", "Open"),
                    ("met", "Met"),
                    ("never", "Never met"),
                    ("waived", "Waived"),
                    ("each", "Each for its own"),
                ],
                default="open",
                max_length=10,
            ),
        ),
    ]
