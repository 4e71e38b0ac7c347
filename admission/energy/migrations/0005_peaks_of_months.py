"""Demand charges by the peak of a month over an interval. Tariffs that are there go on by hours."""

import django.contrib.postgres.fields
import django.core.validators
from django.db import migrations, models

import fleet.models.validators

_INTERVAL = {
    "choices": [(minutes, f"{minutes} min") for minutes in (5, 10, 15, 20, 30, 60)],
    "help_text": "Over which that mean is",
}


class Migration(migrations.Migration):
    dependencies = [("admission_energy", "0004_day_ahead_prices")]

    operations = [
        migrations.AddField(
            model_name="tariff",
            name="demand_interval_min",
            field=models.PositiveSmallIntegerField(default=60, db_default=60, **_INTERVAL),
        ),
        migrations.AlterField(
            model_name="tariff",
            name="demand_interval_min",
            field=models.PositiveSmallIntegerField(default=15, db_default=15, **_INTERVAL),
        ),
        migrations.AlterField(
            model_name="tariff",
            name="demand_per_kw",
            field=models.FloatField(
                blank=True,
                help_text="Of the highest mean of a calendar month",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0),
                    django.core.validators.MaxValueValidator(1000000.0),
                    fleet.models.validators.finite,
                ],
            ),
        ),
        migrations.AddField(
            model_name="sitehour",
            name="five_minutes_mj",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                db_default=[],
                default=list,
                help_text="Its energy by five minutes; empty: that is not known",
                size=12,
            ),
        ),
        migrations.AlterField(
            model_name="sitehour",
            name="demand",
            field=models.FloatField(
                db_default=0.0,
                default=0.0,
                help_text="The month's demand charge, if its peak is in this hour",
            ),
        ),
        migrations.AddField(
            model_name="sitehour",
            name="peak_at",
            field=models.DateTimeField(help_text="Then: where the peak begins", null=True),
        ),
        migrations.AddField(
            model_name="sitehour",
            name="peak_s",
            field=models.PositiveSmallIntegerField(help_text="How long it is, s", null=True),
        ),
        migrations.AddField(
            model_name="sitehour",
            name="peak_w",
            field=models.FloatField(help_text="Its mean power", null=True),
        ),
        migrations.AddField(
            model_name="sitehour",
            name="peak_mj",
            field=models.BigIntegerField(
                help_text="Of this energy its users have shares; empty: of that of the hour",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="placehour",
            name="peak_mj",
            field=models.BigIntegerField(
                help_text="Of a rack: of it, in the month's peak", null=True
            ),
        ),
        migrations.AddField(
            model_name="projecthour",
            name="peak_mj",
            field=models.BigIntegerField(help_text="Of it, in the month's peak", null=True),
        ),
        migrations.AddField(
            model_name="jobhour",
            name="peak_mj",
            field=models.BigIntegerField(help_text="Of it, in the month's peak", null=True),
        ),
    ]
