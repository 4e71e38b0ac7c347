"""Time of GPUs that jobs held and of which nothing tells what was drawn. Of old hours not told."""

from django.db import migrations, models

_FIELD = {
    "help_text": "Of it, of which nothing tells what was drawn; empty: not told",
    "null": True,
}


class Migration(migrations.Migration):
    dependencies = [("admission_energy", "0005_peaks_of_months")]

    operations = [
        migrations.AddField(
            model_name=name, name="unread_ms", field=models.BigIntegerField(**_FIELD)
        )
        for name in ("jobhour", "projecthour")
    ]
