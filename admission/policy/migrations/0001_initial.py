import django.db.models.deletion
from django.db import migrations, models

from policies.documents.migrating import constraints, never_changes


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('admission_jobs', '0004_classes_are_documents'),
        ('policies_rules', '0003_versions_are_documents'),
    ]

    operations = [
        migrations.CreateModel(
            name='AdmissionPolicyVersion',
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
            name='ShadowDecision',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('start', 'start'), ('wait', 'wait'), ('place', 'place'), ('reason', 'reason'), ('preempt', 'preempt'), ('keep', 'keep'), ('refuse', 'refuse')], max_length=20)),
                ('decided', models.CharField(help_text='What was decided, the last time', max_length=500)),
                ('otherwise', models.CharField(help_text='What the shadow would have, then', max_length=500)),
                ('first_at', models.DateTimeField()),
                ('last_at', models.DateTimeField()),
                ('cycles', models.PositiveIntegerField(default=1, help_text='In which it would have')),
            ],
            options={
                'ordering': ['-last_at', '-id'],
            },
        ),
        migrations.CreateModel(
            name='ShadowProgress',
            fields=[
                ('version', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='progress', serialize=False, to='admission_policy.admissionpolicyversion')),
                ('since', models.DateTimeField()),
                ('asked_at', models.DateTimeField(help_text='The last time')),
                ('cycles', models.PositiveIntegerField(default=0)),
                ('took_s', models.FloatField(default=0.0, help_text='Of the last time')),
            ],
        ),
        migrations.AddConstraint(
            model_name='admissionpolicyversion',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'active')), fields=('state',), name='admission_policy_one_active'),
        ),
        migrations.AddField(
            model_name='shadowdecision',
            name='phase',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='admission_jobs.phase'),
        ),
        migrations.AddField(
            model_name='shadowdecision',
            name='version',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='decisions', to='admission_policy.admissionpolicyversion'),
        ),
        migrations.AddIndex(
            model_name='shadowdecision',
            index=models.Index(fields=['version', '-last_at'], name='shadow_decision_of'),
        ),
        migrations.AddIndex(
            model_name='shadowdecision',
            index=models.Index(fields=['last_at'], name='shadow_decision_age'),
        ),
        migrations.AddConstraint(
            model_name='shadowdecision',
            constraint=models.UniqueConstraint(fields=('version', 'phase', 'kind'), name='shadow_decision_once'),
        ),
        *constraints('admissionpolicyversion'),
        never_changes('admission_policy_admissionpolicyversion'),
    ]
