import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):

    dependencies = [('admission_executors', '0004_state_of_gangs_is_derived')]

    operations = [
        migrations.AddField(
            model_name='nodeassignment',
            name='log_first',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='nodeassignment',
            name='log_size',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='nodeassignment',
            name='log_told_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='nodeassignment',
            name='log_asked_from',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='nodeassignment',
            name='log_asked_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddIndex(
            model_name='nodeassignment',
            index=models.Index(
                fields=['node_id'],
                condition=Q(log_asked_from__isnull=False),
                name='executors_assignment_asked',
            ),
        ),
        migrations.CreateModel(
            name='LogPart',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False,
                                           verbose_name='ID')),
                ('start', models.BigIntegerField(
                    help_text='Its place in all of the output, bytes')),
                ('size', models.PositiveIntegerField(help_text='Bytes')),
                ('data', models.BinaryField()),
                ('assignment', models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE, related_name='log_parts',
                    to='admission_executors.nodeassignment')),
            ],
        ),
        migrations.AddConstraint(
            model_name='logpart',
            constraint=models.UniqueConstraint(
                fields=['assignment', 'start'], name='executors_log_part'
            ),
        ),
    ]
