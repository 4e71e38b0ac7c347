from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admission_jobs", "0018_cells_of_artifacts"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="pipeline",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of phases that came as jobs of their own, the owner and name of their run",
                max_length=300,
            ),
        ),
    ]
