from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("admission_jobs", "0008_needs_on_other_jobs")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="unheard",
            field=models.CharField(
                blank=True,
                default="",
                help_text="Which of its machines are not heard, and since when; empty: all are",
                max_length=500,
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                fields=["phase"], condition=~Q(unheard=""), name="attempt_unheard"
            ),
        ),
    ]
