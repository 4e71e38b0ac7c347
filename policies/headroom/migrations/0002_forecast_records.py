from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("policies_headroom", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="forecastscore",
            name="off_sum_w",
            field=models.FloatField(
                db_default=0.0, default=0.0, help_text="Errors without sign, W"
            ),
        ),
        migrations.AddField(
            model_name="forecastscore",
            name="as_now_sum_w",
            field=models.FloatField(
                db_default=0.0, default=0.0, help_text="Those of the load as it was then, W"
            ),
        ),
        migrations.AddField(
            model_name="forecastscore",
            name="shown",
            field=models.BigIntegerField(db_default=0, default=0, help_text="Better than as now"),
        ),
        migrations.AddField(
            model_name="forecastscore",
            name="banded",
            field=models.BigIntegerField(db_default=0, default=0, help_text="With a band"),
        ),
        migrations.AddField(
            model_name="forecastscore",
            name="covered",
            field=models.BigIntegerField(db_default=0, default=0, help_text="Of these: within it"),
        ),
    ]
