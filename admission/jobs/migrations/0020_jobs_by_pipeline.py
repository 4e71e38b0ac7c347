from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Jobs are submitted meanwhile.
    atomic = False
    dependencies = [
        ("admission_jobs", "0019_phases_that_are_jobs_of_their_own"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                condition=models.Q(("pipeline", ""), _negated=True),
                fields=["project", "pipeline"],
                name="job_pipeline",
            ),
        ),
    ]
