from django.db import migrations, models

from policies.documents.migrating import constraints, never_changes

DROP = """
DROP TRIGGER playbook_version_does_not_change ON policies_playbooks_playbookversion;
DROP FUNCTION policies_playbooks_refuse();
"""
#: What came with Headroom was its own reviewer.
FILL = """
UPDATE policies_playbooks_playbookversion SET
    changed_at = coalesce(retired_at, activated_at, created_at),
    reviewer = CASE
        WHEN reviewer = author OR (state = 'active' AND reviewer = '')
        THEN CASE WHEN author = 'system' THEN 'headroom' ELSE 'system' END
        ELSE reviewer
    END;
"""


class Migration(migrations.Migration):

    dependencies = [('policies_playbooks', '0002_versions_do_not_change'), ('policies_rules', '0003_versions_are_documents')]

    operations = [
        migrations.RunSQL(DROP),
        migrations.RemoveConstraint(
            model_name='playbookversion',
            name='playbook_version',
        ),
        migrations.RemoveConstraint(
            model_name='playbookversion',
            name='playbook_one_active',
        ),
        migrations.AddField(
            model_name='playbookversion',
            name='changed_at',
            field=models.DateTimeField(null=True, help_text='When it came to its state'),
        ),
        migrations.AddField(
            model_name='playbookversion',
            name='note',
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name='playbookversion',
            name='share',
            field=models.FloatField(blank=True, help_text='Of a canary: where it counts', null=True),
        ),
        migrations.AlterField(
            model_name='playbookversion',
            name='name',
            field=models.CharField(max_length=100),
        ),
        migrations.AlterField(
            model_name='playbookversion',
            name='number',
            field=models.PositiveIntegerField(help_text='1 for the first of its name'),
        ),
        migrations.AlterField(
            model_name='playbookversion',
            name='reviewer',
            field=models.CharField(blank=True, help_text='Who had it count first; never the author', max_length=200),
        ),
        migrations.AlterField(
            model_name='playbookversion',
            name='state',
            field=models.CharField(choices=[('draft', 'Draft'), ('shadow', 'Shadow'), ('canary', 'Canary'), ('active', 'Active'), ('retired', 'Retired')], default='draft', max_length=10),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='playbookversion',
            name='changed_at',
            field=models.DateTimeField(help_text='When it came to its state'),
        ),
        migrations.RemoveField(
            model_name='playbookversion',
            name='retired_at',
        ),
        *constraints('playbookversion'),
        never_changes('policies_playbooks_playbookversion'),
    ]
