import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):

    dependencies = [
        ('admission_schedulers', '0002_what_jobs_wait_for'),
    ]

    operations = [
        migrations.CreateModel(
            name='Move',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(help_text='job/move/number', max_length=300, unique=True)),
                ('name', models.CharField(help_text='Of our job', max_length=200)),
                ('parcel', models.JSONField(help_text='What it is submitted with')),
                ('state', models.CharField(choices=[('leaving', 'Leaving'), ('away', 'Away'), ('arrived', 'Arrived'), ('off', 'Called off')], default='leaving', max_length=10)),
                ('begun_at', models.DateTimeField()),
                ('refused_at', models.DateTimeField(help_text='Since when it was not asked for again', null=True)),
                ('why', models.CharField(blank=True, help_text='Why it was not taken', max_length=500)),
            ],
        ),
        migrations.AddField(
            model_name='schedulerjob',
            name='is_parcel_wanted',
            field=models.BooleanField(default=False, help_text='Its bridge is asked for it'),
        ),
        migrations.AddField(
            model_name='schedulerjob',
            name='parcel',
            field=models.JSONField(help_text='What it is submitted with in another scheduler', null=True),
        ),
        migrations.AddField(
            model_name='schedulernode',
            name='down_since',
            field=models.DateTimeField(help_text='Since when it does not answer', null=True),
        ),
        migrations.AlterField(
            model_name='schedulerjob',
            name='name',
            field=models.CharField(help_text='Of our job for it', max_length=200),
        ),
        migrations.AddIndex(
            model_name='schedulerjob',
            index=models.Index(fields=['name'], name='scheduler_job_name'),
        ),
        migrations.AddConstraint(
            model_name='schedulerjob',
            constraint=models.UniqueConstraint(condition=Q(is_settled=False), fields=('name',), name='scheduler_job_name_once'),
        ),
        migrations.AddField(
            model_name='move',
            name='source',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='moves', to='admission_schedulers.schedulerjob'),
        ),
        migrations.AddField(
            model_name='move',
            name='to',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='moves', to='admission_schedulers.scheduler'),
        ),
        migrations.AddConstraint(
            model_name='move',
            constraint=models.UniqueConstraint(condition=Q(state__in=('leaving', 'away')), fields=('name',), name='scheduler_move_open_once'),
        ),
        # Nodes that were down before were silent when what they ran was given up.
        migrations.RunSQL(
            "UPDATE admission_schedulers_schedulernode SET down_since = 'epoch' WHERE state = 'down'",
            migrations.RunSQL.noop,
        ),
    ]
