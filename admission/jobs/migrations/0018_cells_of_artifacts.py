from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admission_jobs", "0017_artifacts"),
    ]

    operations = [
        migrations.AddField(
            model_name="artifact",
            name="cells",
            field=models.JSONField(
                help_text="Of a result of a matrix: how many ended how", null=True
            ),
        ),
    ]
