from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0008_limit_reports")]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="thinned_rows",
            field=models.BigIntegerField(
                default=0, help_text="Readings left out of batches that waited, to make room"
            ),
        ),
        migrations.AlterField(
            model_name="agent",
            name="skew_s",
            field=models.FloatField(blank=True, help_text="Its clock minus ours, s", null=True),
        ),
    ]
