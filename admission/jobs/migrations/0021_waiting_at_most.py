from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admission_jobs", "0020_jobs_by_pipeline"),
    ]

    operations = [
        migrations.AlterField(
            model_name="submissionpace",
            name="kind",
            field=models.CharField(
                help_text="user, project, or a user in a project", max_length=10
            ),
        ),
        migrations.AlterField(
            model_name="submissionpace",
            name="full_at",
            field=models.DateTimeField(help_text="When the bucket of submissions is full again"),
        ),
        migrations.AddField(
            model_name="submissionpace",
            name="waiting_jobs",
            field=models.PositiveIntegerField(
                db_default=0, default=0, help_text="As last counted, and all that came since"
            ),
        ),
        migrations.AddField(
            model_name="submissionpace",
            name="waiting_phases",
            field=models.PositiveIntegerField(
                db_default=0, default=0, help_text="As last counted, and all that came since"
            ),
        ),
        migrations.AddField(
            model_name="submissionpace",
            name="counted_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
