"""Names of places are a site's, a slash and their own: some 400 characters. Only the bound moves."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("admission_bookings", "0001_initial")]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="booking",
            name="scope_name",
            field=models.CharField(blank=True, max_length=420),
        ),
    ]
