"""How much of its span a replay has behind it."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("policies_rules", "0003_versions_are_documents")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="rulereplay",
            name="done_s",
            field=models.FloatField(
                db_default=0.0, default=0.0, help_text="So much of its span is replayed, s"
            ),
        ),
    ]
