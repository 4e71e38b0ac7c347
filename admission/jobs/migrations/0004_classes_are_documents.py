from django.db import migrations, models

from policies.documents.migrating import constraints, never_changes

#: The newest version of each class counted, whoever had written it.
FILL = """
UPDATE admission_jobs_classversion AS version SET
    state = CASE WHEN number = newest THEN 'active' ELSE 'retired' END,
    reviewer = CASE WHEN author = 'system' THEN 'headroom' ELSE 'system' END,
    note = 'in force before versions of classes were reviewed',
    changed_at = created_at,
    activated_at = created_at
FROM (
    SELECT name AS of, max(number) AS newest FROM admission_jobs_classversion GROUP BY name
) AS last
WHERE of = name;
"""


class Migration(migrations.Migration):

    dependencies = [('admission_jobs', '0003_projects_of_groups'), ('policies_rules', '0003_versions_are_documents')]

    operations = [
        migrations.RemoveConstraint(
            model_name='classversion',
            name='class_version',
        ),
        migrations.AddField(
            model_name='classversion',
            name='activated_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='classversion',
            name='changed_at',
            field=models.DateTimeField(null=True, help_text='When it came to its state'),
        ),
        migrations.AddField(
            model_name='classversion',
            name='note',
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name='classversion',
            name='reviewer',
            field=models.CharField(blank=True, help_text='Who had it count first; never the author', max_length=200),
        ),
        migrations.AddField(
            model_name='classversion',
            name='share',
            field=models.FloatField(blank=True, help_text='Of a canary: where it counts', null=True),
        ),
        migrations.AddField(
            model_name='classversion',
            name='state',
            field=models.CharField(choices=[('draft', 'Draft'), ('shadow', 'Shadow'), ('canary', 'Canary'), ('active', 'Active'), ('retired', 'Retired')], default='draft', max_length=10),
        ),
        migrations.AlterField(
            model_name='classversion',
            name='name',
            field=models.CharField(max_length=100),
        ),
        migrations.AlterField(
            model_name='classversion',
            name='number',
            field=models.PositiveIntegerField(help_text='1 for the first of its name'),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='classversion',
            name='changed_at',
            field=models.DateTimeField(help_text='When it came to its state'),
        ),
        *constraints('classversion'),
        never_changes('admission_jobs_classversion'),
    ]
