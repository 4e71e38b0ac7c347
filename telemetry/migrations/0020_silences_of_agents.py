import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('telemetry', '0019_node_versions'),
    ]

    operations = [
        migrations.AddField(
            model_name='agent',
            name='heard_to',
            field=models.DateTimeField(editable=False, help_text='Its newest reading, by its own clock', null=True),
        ),
        migrations.CreateModel(
            name='AgentSilence',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='silences', to='telemetry.agent')),
            ],
            options={
                'ordering': ['-since'],
                'indexes': [models.Index(fields=['until'], name='agent_silence_until')],
                'constraints': [models.UniqueConstraint(fields=('agent', 'since'), name='agent_silence_key')],
            },
        ),
    ]
