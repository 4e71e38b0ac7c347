from django.db import migrations, models

from policies.documents.migrating import NEVER_CHANGES, constraints, never_changes

DROP = """
DROP TRIGGER rule_version_never_changes ON policies_rules_ruleversion;
DROP FUNCTION policies_rules_refuse();
"""
#: A rule was a row of its own that had a name and when its first version was written.
FILL = """
UPDATE policies_rules_ruleversion AS version SET
    name = rule.name,
    activated_at = CASE WHEN state = 'active' THEN changed_at END
FROM policies_rules_rule AS rule WHERE rule.id = rule_id;
"""


class Migration(migrations.Migration):

    dependencies = [('policies_rules', '0002_versions_never_change')]

    operations = [
        migrations.RunSQL(DROP),
        migrations.RemoveConstraint(
            model_name='ruleversion',
            name='rule_version_number',
        ),
        migrations.RemoveConstraint(
            model_name='ruleversion',
            name='rule_one_active',
        ),
        migrations.RemoveConstraint(
            model_name='ruleversion',
            name='rule_one_canary',
        ),
        migrations.RemoveConstraint(
            model_name='ruleversion',
            name='rule_reviewer_is_another',
        ),
        migrations.RemoveConstraint(
            model_name='ruleversion',
            name='rule_counts_when_reviewed',
        ),
        migrations.RemoveConstraint(
            model_name='ruleversion',
            name='rule_share_of_canaries',
        ),
        migrations.AddField(
            model_name='ruleversion',
            name='activated_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='ruleversion',
            name='name',
            field=models.CharField(null=True, max_length=100),
        ),
        migrations.AlterField(
            model_name='ruleversion',
            name='author',
            field=models.CharField(max_length=200),
        ),
        migrations.AlterField(
            model_name='ruleversion',
            name='changed_at',
            field=models.DateTimeField(help_text='When it came to its state'),
        ),
        migrations.AlterField(
            model_name='ruleversion',
            name='number',
            field=models.PositiveIntegerField(help_text='1 for the first of its name'),
        ),
        migrations.AlterField(
            model_name='ruleversion',
            name='reviewer',
            field=models.CharField(blank=True, help_text='Who had it count first; never the author', max_length=200),
        ),
        migrations.AlterField(
            model_name='ruleversion',
            name='share',
            field=models.FloatField(blank=True, help_text='Of a canary: where it counts', null=True),
        ),
        migrations.AlterField(
            model_name='ruleversion',
            name='text',
            field=models.TextField(help_text='YAML'),
        ),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='ruleversion',
            name='name',
            field=models.CharField(max_length=100),
        ),
        migrations.AlterModelOptions(
            name='ruleversion',
            options={'ordering': ['name', '-number']},
        ),
        migrations.RemoveField(
            model_name='ruleversion',
            name='rule',
        ),
        migrations.DeleteModel(
            name='Rule',
        ),
        *constraints('ruleversion'),
        NEVER_CHANGES,
        never_changes('policies_rules_ruleversion'),
    ]
