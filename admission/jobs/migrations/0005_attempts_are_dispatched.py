from django.db import migrations, models
from django.db.models import Q

#: Attempts in the state, and events of the kind, that were called "released".
RENAME = """
UPDATE admission_jobs_attempt SET state = 'dispatched' WHERE state = 'released';
UPDATE admission_jobs_jobevent SET kind = 'dispatched' WHERE kind = 'released';
"""
BACK = """
UPDATE admission_jobs_attempt SET state = 'released' WHERE state = 'dispatched';
UPDATE admission_jobs_jobevent SET kind = 'released' WHERE kind = 'dispatched';
"""


class Migration(migrations.Migration):

    dependencies = [('admission_jobs', '0004_classes_are_documents')]

    operations = [
        migrations.RemoveConstraint(model_name='attempt', name='attempt_one_open'),
        migrations.RenameField(model_name='attempt', old_name='released_at', new_name='dispatched_at'),
        migrations.RunSQL(RENAME, BACK),
        migrations.AlterField(
            model_name='attempt',
            name='state',
            field=models.CharField(
                choices=[('dispatched', 'Dispatched'), ('running', 'Running'), ('ended', 'Ended')],
                default='dispatched',
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(
                fields=['phase'],
                condition=Q(state__in=['dispatched', 'running']),
                name='attempt_one_open',
            ),
        ),
    ]
