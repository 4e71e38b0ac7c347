"""What was said to be held waits for a person, and says so."""

from django.db import migrations, models
from django.db.models import Q

_WORDS = """
UPDATE policies_restrictions_restriction SET state = '{new}' WHERE state = '{old}';
UPDATE policies_restrictions_restrictionevent SET kind = '{new}' WHERE kind = '{old}';
"""
_LIVE = Q(state__in=["pending_approval", "in_force", "refused"])


class Migration(migrations.Migration):
    dependencies = [("policies_restrictions", "0002_triggers")]

    operations = [
        migrations.RemoveConstraint("restriction", "restriction_one_live"),
        migrations.RemoveIndex("restriction", "restriction_live_expires"),
        migrations.RenameField("restriction", "held_value", "pending_value"),
        migrations.RenameField("restriction", "held_why", "pending_why"),
        migrations.AlterField(
            "restriction",
            "state",
            models.CharField(
                choices=[
                    ("pending_approval", "Pending approval"),
                    ("in_force", "In force"),
                    ("refused", "Refused"),
                    ("expired", "Expired"),
                    ("released", "Released"),
                ],
                max_length=20,
            ),
        ),
        migrations.AlterField(
            "restrictionevent",
            "kind",
            models.CharField(
                choices=[
                    ("issued", "Issued"),
                    ("pending_approval", "Waits for a person"),
                    ("in_force", "In force"),
                    ("changed", "Value changed"),
                    ("extended", "Extended"),
                    ("approved", "Approved"),
                    ("refused", "Refused"),
                    ("lifted", "Lifted"),
                    ("released", "Released"),
                    ("expired", "Expired"),
                    ("acknowledged", "Acknowledged"),
                    ("applied", "Applied"),
                    ("measured", "Measured"),
                    ("verdict", "Verdict"),
                ],
                max_length=20,
            ),
        ),
        migrations.RunSQL(
            _WORDS.format(old="held", new="pending_approval"),
            _WORDS.format(old="pending_approval", new="held"),
        ),
        migrations.AddIndex(
            "restriction",
            models.Index(condition=_LIVE, fields=["expires_at"], name="restriction_live_expires"),
        ),
        migrations.AddConstraint(
            "restriction",
            models.UniqueConstraint(
                condition=_LIVE,
                fields=("owner", "cause", "kind", "scope_kind", "scope_name"),
                name="restriction_one_live",
            ),
        ),
    ]
