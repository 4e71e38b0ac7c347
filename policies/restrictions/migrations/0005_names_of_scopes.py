"""Names of places are a site's, a slash and their own: some 400 characters. Only the bound moves."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("policies_restrictions", "0004_power_budgets")]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="restriction",
            name="scope_name",
            field=models.CharField(max_length=420),
        ),
    ]
