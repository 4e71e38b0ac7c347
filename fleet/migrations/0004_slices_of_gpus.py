from django.db import migrations, models

import fleet.models.validators


class Migration(migrations.Migration):
    dependencies = [("fleet", "0003_plain_names_and_bounds")]

    operations = [
        migrations.AddField(
            model_name="gpu",
            name="slices",
            field=models.JSONField(
                blank=True,
                default=list,
                # For the code before, which writes rows without it.
                db_default=[],
                help_text="MIG profiles that it is split into, in the order of NVML; empty: it is whole",
                validators=[fleet.models.validators.slices],
            ),
        ),
    ]
