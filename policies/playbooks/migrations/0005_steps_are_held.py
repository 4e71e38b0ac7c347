from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('policies_playbooks', '0004_runs_succeed_when_clear'),
    ]

    operations = [
        migrations.AddField(
            model_name='steprun',
            name='restriction',
            field=models.BigIntegerField(help_text='The restriction that it has issued', null=True),
        ),
        migrations.AlterField(
            model_name='steprun',
            name='state',
            field=models.CharField(choices=[('waiting', 'waiting'), ('done', 'done'), ('skipped', 'skipped'), ('timed_out', 'timed_out'), ('failed', 'failed'), ('refused', 'refused'), ('withdrawn', 'withdrawn'), ('held', 'held'), ('ineffective', 'ineffective')], max_length=12),
        ),
    ]
