from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [
        ("admission_jobs", "0012_same_elements_of_arrays"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="interactive",
            field=models.BooleanField(
                default=False, help_text="It is for a terminal in it, and ends once that does"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=Q(interactive=True), fields=["state"], name="job_interactive"
            ),
        ),
    ]
