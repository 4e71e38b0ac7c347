import django.db.models.deletion
from django.db import migrations, models

_PATH = "On the machines of its phase"
_ATTEMPT = "That made it: job/phase/number"


class Migration(migrations.Migration):
    dependencies = [
        ("admission_jobs", "0016_what_output_tells"),
    ]

    operations = [
        migrations.CreateModel(
            name="Artifact",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=60)),
                ("path", models.CharField(help_text=_PATH, max_length=4000)),
                ("digest", models.CharField(max_length=80)),
                ("size_bytes", models.BigIntegerField()),
                (
                    "site",
                    models.CharField(blank=True, help_text="Where it was made", max_length=200),
                ),
                ("attempt", models.CharField(help_text=_ATTEMPT, max_length=300)),
                ("recorded_at", models.DateTimeField()),
                (
                    "phase",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="artifacts",
                        to="admission_jobs.phase",
                    ),
                ),
            ],
            options={
                "ordering": ["phase_id", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("phase", "name"), name="artifact_of_phase")
                ],
            },
        ),
        migrations.CreateModel(
            name="ArtifactCopy",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("site", models.CharField(max_length=200)),
                ("path", models.CharField(help_text="On the machines there", max_length=4000)),
                ("digest", models.CharField(max_length=80)),
                ("size_bytes", models.BigIntegerField()),
                ("attempt", models.CharField(help_text=_ATTEMPT, max_length=300)),
                ("recorded_at", models.DateTimeField()),
                (
                    "artifact",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="copies",
                        to="admission_jobs.artifact",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "artifact copies",
                "ordering": ["artifact_id", "site"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("artifact", "site"), name="artifact_copy_at_site"
                    )
                ],
            },
        ),
    ]
