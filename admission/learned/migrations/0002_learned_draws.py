import django.contrib.postgres.fields
from django.db import migrations, models


def _watts() -> django.contrib.postgres.fields.ArrayField:
    return django.contrib.postgres.fields.ArrayField(
        base_field=models.FloatField(), default=list, size=None
    )


class Migration(migrations.Migration):
    dependencies = [
        ("admission_learned", "0001_initial"),
    ]

    operations = [
        migrations.AddField(model_name="draw", name="mean_w", field=_watts()),
        migrations.AddField(model_name="draw", name="high_w", field=_watts()),
        migrations.AddField(model_name="draw", name="deviation_w", field=_watts()),
        migrations.AddField(model_name="draw", name="samples", field=_watts()),
    ]
