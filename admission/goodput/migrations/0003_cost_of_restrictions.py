"""What restrictions took of the time of GPUs, by hour. Hours from before are not known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admission_goodput", "0002_program_of_hours")]

    operations = [
        migrations.AddField(
            model_name="accountedhour",
            name="has_restrictions",
            field=models.BooleanField(
                db_default=False, default=False, help_text="What restrictions took is told apart"
            ),
        ),
        migrations.CreateModel(
            name="HourRestriction",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("hour", models.DateTimeField()),
                ("restriction_id", models.BigIntegerField()),
                ("site", models.CharField(max_length=200)),
                (
                    "project",
                    models.CharField(blank=True, help_text="Empty: nobody held them", max_length=60),
                ),
                (
                    "us",
                    models.BigIntegerField(
                        help_text="µs of GPUs: of a cap what was capped, else drained"
                    ),
                ),
                (
                    "shared_us",
                    models.BigIntegerField(help_text="Of it, while others asked for the same"),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["restriction_id", "hour"], name="goodput_restriction_hour"
                    ),
                    models.Index(fields=["hour"], name="goodput_hour_restriction"),
                ]
            },
        ),
    ]
