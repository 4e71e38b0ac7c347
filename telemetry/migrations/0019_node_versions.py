import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0003_plain_names_and_bounds'),
        ('telemetry', '0018_traffic_by_class'),
    ]

    operations = [
        migrations.CreateModel(
            name='NodeVersions',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('driver', models.CharField(blank=True, help_text='Of the GPUs', max_length=300)),
                ('vbios', models.CharField(blank=True, help_text='Of the GPUs, each once', max_length=300)),
                ('nic_firmware', models.CharField(blank=True, help_text='Of the NICs, each once', max_length=300)),
                ('fabric_driver', models.CharField(blank=True, help_text='Of the NICs', max_length=300)),
                ('nccl', models.CharField(blank=True, help_text='That jobs told last', max_length=300)),
                ('image', models.CharField(blank=True, help_text='That jobs told last', max_length=300)),
                ('told_at', models.DateTimeField(help_text='By the clock of the agent')),
                ('changed_at', models.DateTimeField(help_text='Since when it is so, by the clock of the agent')),
                ('node', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='versions', to='fleet.node')),
            ],
            options={
                'verbose_name_plural': 'node versions',
                'ordering': ['node__name'],
            },
        ),
    ]
