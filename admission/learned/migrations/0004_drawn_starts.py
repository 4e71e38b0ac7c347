import django.contrib.postgres.fields
from django.db import migrations, models


def forget_estimates(apps, schema_editor):
    """Drop what was learned of forecasts that were made otherwise, and those still open."""
    apps.get_model("admission_learned", "StartCalibration").objects.all().delete()
    apps.get_model("admission_learned", "StartForecast").objects.filter(began_s=None).delete()


class Migration(migrations.Migration):

    dependencies = [
        ("admission_learned", "0003_use_by_user"),
    ]

    operations = [
        migrations.RunPython(forget_estimates, migrations.RunPython.noop),
        migrations.RemoveField(model_name="startforecast", name="forecast_s"),
        migrations.AddField(
            model_name="startforecast",
            name="drawn_s",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.FloatField(), default=list, size=None
            ),
        ),
        migrations.AddField(
            model_name="startforecast",
            name="gpus",
            field=models.PositiveIntegerField(default=1),
        ),
    ]
