from django.db import migrations, models

FILL = """
UPDATE policies_playbooks_playbookrun SET rule = substr(started_by, 6)
WHERE started_by LIKE 'rule:%%';
"""


class Migration(migrations.Migration):

    dependencies = [
        ('policies_playbooks', '0003_playbooks_are_documents'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='playbookrun',
            name='playbook_run_one_per_incident',
        ),
        migrations.AddField(
            model_name='playbookrun',
            name='attempt',
            field=models.PositiveIntegerField(default=1, help_text='Which run it is for this rule and place within a while'),
        ),
        migrations.AddField(
            model_name='playbookrun',
            name='clear_since',
            field=models.DateTimeField(blank=True, help_text='Since when its rule is clear, while it holds on', null=True),
        ),
        migrations.AddField(
            model_name='playbookrun',
            name='ended_by',
            field=models.CharField(blank=True, help_text='The person who ended it; empty: by itself', max_length=200),
        ),
        migrations.AddField(
            model_name='playbookrun',
            name='escalated_at',
            field=models.DateTimeField(blank=True, help_text='When people were told that its rule fires on', null=True),
        ),
        migrations.AddField(
            model_name='playbookrun',
            name='rule',
            field=models.CharField(blank=True, help_text='The rule that started it; empty: a person did', max_length=300),
        ),
        migrations.AddField(
            model_name='playbookrun',
            name='verifying_since',
            field=models.DateTimeField(blank=True, help_text='When all its steps were through, while its rule fired', null=True),
        ),
        migrations.AlterField(
            model_name='playbookrun',
            name='state',
            field=models.CharField(choices=[('running', 'running'), ('waiting', 'waiting'), ('paused', 'paused'), ('verifying', 'verifying'), ('succeeded', 'succeeded'), ('failed', 'failed'), ('aborted', 'aborted'), ('undoing', 'undoing'), ('undone', 'undone')], max_length=10),
        ),
        migrations.AddIndex(
            model_name='playbookrun',
            index=models.Index(fields=['rule', 'scope_name', '-started_at'], name='playbook_run_rule'),
        ),
        migrations.AddConstraint(
            model_name='playbookrun',
            constraint=models.UniqueConstraint(condition=models.Q(('incident_id__isnull', False), ('state__in', ['running', 'waiting', 'paused', 'verifying'])), fields=('playbook', 'scope_kind', 'scope_name', 'incident_id'), name='playbook_run_one_per_incident'),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
