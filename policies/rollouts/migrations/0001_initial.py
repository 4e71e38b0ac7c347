import django.db.models.deletion
from django.db import migrations, models

from policies.documents.migrating import constraints, never_changes

STATES = [(each, each) for each in ('pending', 'changing', 'soaking', 'held', 'rolling_back', 'rolled_back', 'done')]


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('policies_rules', '0003_versions_are_documents'),
    ]

    operations = [
        migrations.CreateModel(
            name='RolloutVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('number', models.PositiveIntegerField(help_text='1 for the first of its name')),
                ('text', models.TextField(help_text='YAML')),
                ('note', models.CharField(blank=True, max_length=500)),
                ('state', models.CharField(choices=[('draft', 'Draft'), ('shadow', 'Shadow'), ('canary', 'Canary'), ('active', 'Active'), ('retired', 'Retired')], default='draft', max_length=10)),
                ('share', models.FloatField(blank=True, help_text='Of a canary: where it counts', null=True)),
                ('author', models.CharField(max_length=200)),
                ('reviewer', models.CharField(blank=True, help_text='Who had it count first; never the author', max_length=200)),
                ('created_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField(help_text='When it came to its state')),
                ('activated_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['name', '-number'],
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='RolloutRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100)),
                ('state', models.CharField(choices=STATES, default='pending', max_length=20)),
                ('step', models.PositiveSmallIntegerField(default=0, help_text='From 0')),
                ('since', models.DateTimeField(help_text='Since when it is in its state')),
                ('soaking_since', models.DateTimeField(help_text='Since when all racks of its step have the change', null=True)),
                ('why', models.CharField(blank=True, max_length=500)),
                ('by', models.CharField(blank=True, help_text='The person; empty: by itself', max_length=200)),
                ('started_at', models.DateTimeField()),
                ('changing_since', models.DateTimeField(help_text='When the first rack began to be changed', null=True)),
                ('ended_at', models.DateTimeField(null=True)),
                ('racks', models.JSONField(default=list, help_text='Paths of the racks that each step has added')),
                ('control', models.JSONField(default=list, help_text='Paths of those that it is compared with')),
                ('imbalance', models.JSONField(default=dict, help_text='Differences of the arms in standard deviations')),
                ('playbook_runs', models.JSONField(default=dict, help_text='By the path of a rack')),
                ('checkpoint_bytes', models.JSONField(default=dict, help_text='Of the last checkpoint of each job before the change')),
                ('judged', models.JSONField(default=dict, help_text='The last judgement; empty: none yet')),
                ('judged_at', models.DateTimeField(null=True)),
                ('version', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='runs', to='policies_rollouts.rolloutversion')),
            ],
            options={
                'ordering': ['-started_at', '-id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['rolled_back', 'done']), _negated=True), fields=('name',), name='rollout_one_live')],
            },
        ),
        migrations.CreateModel(
            name='RolloutEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('state', models.CharField(help_text='That it came to', max_length=20)),
                ('step', models.PositiveSmallIntegerField()),
                ('by', models.CharField(blank=True, help_text='The person; empty: by itself', max_length=200)),
                ('text', models.CharField(max_length=500)),
                ('run', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='policies_rollouts.rolloutrun')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        *constraints('rolloutversion'),
        never_changes('policies_rollouts_rolloutversion'),
    ]
