from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("admission_directives", "0002_preempted_within_the_hour")]

    operations = [
        migrations.AddIndex(
            model_name="directive",
            index=models.Index(
                fields=["issued_at"],
                condition=Q(owner__in=["growth", "defragmentation"]),
                name="directive_moved",
            ),
        ),
    ]
