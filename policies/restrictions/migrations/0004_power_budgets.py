"""Budgets of power, which may be announced."""

from django.db import migrations, models

_KINDS = (
    "no_new_launches",
    "max_concurrent_jobs",
    "power_cap_w",
    "power_budget_w",
    "clock_cap_mhz",
    "max_batch_scale",
    "local_only",
    "no_cross_site_checkpoint",
    "drain",
    "prefer_away",
    "link_share",
    "hold_for_review",
)


class Migration(migrations.Migration):
    dependencies = [("policies_restrictions", "0003_pending_approval")]

    operations = [
        migrations.AlterField(
            "restriction",
            "kind",
            models.CharField(choices=[(kind, kind) for kind in _KINDS], max_length=40),
        ),
        migrations.AddField(
            "restriction",
            "starts_at",
            models.DateTimeField(
                help_text="When it has to be met, where it was announced; null: at once", null=True
            ),
        ),
    ]
