from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admission_executors", "0009_steps_of_signals"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodeassignment",
            name="outputs",
            field=models.JSONField(null=True),
        ),
    ]
