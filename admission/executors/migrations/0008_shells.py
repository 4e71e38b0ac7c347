import uuid

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("admission_executors", "0007_leases_of_machines")]

    operations = [
        migrations.AddField(
            model_name="nodeassignment",
            name="shell_asked_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.CreateModel(
            name="Shell",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                ("job", models.CharField(max_length=200)),
                ("user", models.CharField(max_length=200)),
                ("request", models.JSONField(default=dict)),
                ("asked_at", models.DateTimeField()),
                ("begun_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "why",
                    models.CharField(blank=True, help_text="Why it ended", max_length=500),
                ),
                ("exit_code", models.SmallIntegerField(null=True)),
                ("bytes_in", models.BigIntegerField(default=0)),
                ("bytes_out", models.BigIntegerField(default=0)),
                (
                    "assignment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="shells",
                        to="admission_executors.nodeassignment",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="shell",
            index=models.Index(
                condition=Q(ended_at=None), fields=["assignment"], name="executors_shell_open"
            ),
        ),
    ]
