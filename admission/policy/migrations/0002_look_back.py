from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admission_policy", "0001_initial")]

    operations = [
        migrations.AddField(
            "shadowprogress",
            "reconstructed_until",
            models.DateTimeField(
                null=True,
                help_text="What it would have decided before is from records; null: not yet",
            ),
        ),
        migrations.AddField("shadowprogress", "reconstructed_step_s", models.FloatField(null=True)),
    ]
