from django.core import validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0004_slices_of_gpus")]

    operations = [
        migrations.AddField(
            model_name="hardwaremodel",
            name="cores",
            field=models.PositiveIntegerField(
                blank=True,
                null=True,
                help_text="CPU cores of a node; jobs that take no GPU have these where it has no GPUs",
                validators=[validators.MinValueValidator(1), validators.MaxValueValidator(4096)],
            ),
        ),
    ]
