import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("admission_jobs", "0014_energy_of_attempts"),
        ("admission_learned", "0004_drawn_starts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Throughput",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("gpus", models.PositiveIntegerField()),
                (
                    "unit",
                    models.CharField(
                        choices=[
                            ("samples", "samples"), ("tokens", "tokens"), ("steps", "steps"),
                        ],
                        max_length=10,
                    ),
                ),
                ("per_s", models.FloatField()),
                ("for_s", models.FloatField(help_text="For how long it was measured, s")),
                ("seen_at", models.DateTimeField()),
                (
                    "phase",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="throughputs",
                        to="admission_jobs.phase",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("phase", "gpus"), name="throughput_of_size"),
                ],
            },
        ),
    ]
