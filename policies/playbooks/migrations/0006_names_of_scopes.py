"""Names of places are a site's, a slash and their own: some 400 characters. Only the bound moves."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("policies_playbooks", "0005_steps_are_held")]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="playbookrun",
            name="scope_name",
            field=models.CharField(max_length=420),
        ),
        migrations.AlterField(
            model_name="directive",
            name="scope_name",
            field=models.CharField(max_length=420),
        ),
    ]
