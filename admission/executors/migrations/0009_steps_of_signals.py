from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("admission_executors", "0008_shells"),
    ]

    operations = [
        migrations.AddField(
            model_name="nodeassignment",
            name="done_at_step",
            field=models.BigIntegerField(null=True),
        ),
    ]
