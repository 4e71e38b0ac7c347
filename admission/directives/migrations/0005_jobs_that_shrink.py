from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("admission_directives", "0004_fallback_seen")]

    operations = [
        migrations.RemoveIndex(model_name="directive", name="directive_moved"),
        migrations.AddIndex(
            model_name="directive",
            index=models.Index(
                fields=["issued_at"],
                condition=Q(owner__in=["growth", "shrinking", "defragmentation"]),
                name="directive_moved",
            ),
        ),
    ]
