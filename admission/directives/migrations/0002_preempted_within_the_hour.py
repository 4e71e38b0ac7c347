from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("admission_directives", "0001_initial")]

    operations = [
        migrations.AddIndex(
            model_name="directive",
            index=models.Index(
                fields=["issued_at"], condition=Q(owner="preemption"), name="directive_preempted"
            ),
        ),
    ]
