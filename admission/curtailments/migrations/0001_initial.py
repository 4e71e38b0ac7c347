import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('policies_restrictions', '0004_power_budgets'),
    ]

    operations = [
        migrations.CreateModel(
            name='Curtailment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('site', models.CharField(max_length=200)),
                ('asked', models.JSONField(help_text='by_w, to_w or by_share')),
                ('source', models.CharField(help_text='user:NAME or openadr:EVENT/INTERVAL', max_length=300)),
                ('reason', models.CharField(max_length=500)),
                ('target_w', models.FloatField(help_text='What the site may draw')),
                ('baseline_w', models.FloatField(help_text='What it drew before on average; null: there were no readings', null=True)),
                ('baseline_s', models.FloatField(default=0.0, help_text='How many seconds of readings that is of')),
                ('announced_at', models.DateTimeField()),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(help_text='Earlier than asked for where it was canceled')),
                ('estimate', models.JSONField(help_text='What it would cost, as worked out beforehand')),
                ('canceled_at', models.DateTimeField(null=True)),
                ('canceled_by', models.CharField(blank=True, max_length=200)),
                ('judged_at', models.DateTimeField(null=True)),
                ('result', models.JSONField(default=dict, help_text='What was kept of it, by meters')),
                ('program_id', models.CharField(blank=True, max_length=128)),
                ('event_id', models.CharField(blank=True, max_length=128)),
                ('interval_id', models.IntegerField(null=True)),
                ('reported_at', models.DateTimeField(null=True)),
                ('restriction', models.ForeignKey(help_text='By which it is held', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='policies_restrictions.restriction')),
            ],
            options={
                'ordering': ['-starts_at', '-id'],
                'indexes': [models.Index(fields=['-starts_at', '-id'], name='curtailment_starts'), models.Index(condition=models.Q(('judged_at', None)), fields=['ends_at'], name='curtailment_unjudged')],
                'constraints': [models.CheckConstraint(condition=models.Q(('ends_at__gte', models.F('starts_at'))), name='curtailment_ends_after_it_starts'), models.UniqueConstraint(condition=models.Q(('canceled_at', None), models.Q(('event_id', ''), _negated=True)), fields=('source',), name='curtailment_once_for_an_interval')],
            },
        ),
    ]
