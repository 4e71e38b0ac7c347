from django.db import migrations, models

from policies.documents.migrating import constraints, never_changes

#: Each objective becomes the version that it was at, with all that was judged by it.
FILL = """
UPDATE admission_slos_slo SET
    state = CASE WHEN retired_at IS NULL THEN 'active' ELSE 'retired' END,
    reviewer = CASE WHEN author = 'system' THEN 'headroom' ELSE 'system' END,
    note = 'in force before versions of objectives were reviewed',
    activated_at = changed_at,
    changed_at = coalesce(retired_at, changed_at);
"""


class Migration(migrations.Migration):

    dependencies = [('admission_slos', '0001_initial'), ('policies_rules', '0003_versions_are_documents')]

    operations = [
        migrations.RenameField(
            model_name='slo',
            old_name='version',
            new_name='number',
        ),
        migrations.AlterModelOptions(
            name='slo',
            options={'ordering': ['name', '-number']},
        ),
        migrations.AddField(
            model_name='slo',
            name='activated_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='slo',
            name='note',
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AlterField(
            model_name='slo',
            name='number',
            field=models.PositiveIntegerField(help_text='1 for the first of its name'),
        ),
        migrations.AddField(
            model_name='slo',
            name='reviewer',
            field=models.CharField(blank=True, help_text='Who had it count first; never the author', max_length=200),
        ),
        migrations.AddField(
            model_name='slo',
            name='share',
            field=models.FloatField(blank=True, help_text='Of a canary: where it counts', null=True),
        ),
        migrations.AddField(
            model_name='slo',
            name='state',
            field=models.CharField(choices=[('draft', 'Draft'), ('shadow', 'Shadow'), ('canary', 'Canary'), ('active', 'Active'), ('retired', 'Retired')], default='draft', max_length=10),
        ),
        migrations.AlterField(
            model_name='slo',
            name='author',
            field=models.CharField(max_length=200),
        ),
        migrations.AlterField(
            model_name='slo',
            name='changed_at',
            field=models.DateTimeField(help_text='When it came to its state'),
        ),
        migrations.AlterField(
            model_name='slo',
            name='name',
            field=models.CharField(max_length=100),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.RemoveField(
            model_name='slo',
            name='retired_at',
        ),
        *constraints('slo'),
        never_changes('admission_slos_slo'),
    ]
