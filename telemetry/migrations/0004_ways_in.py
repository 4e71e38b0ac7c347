import django.db.models.deletion
from django.db import migrations, models

COLUMNS_BEFORE = "name, digest, revoked_at"
COLUMNS = "name, digest, previous_digest, previous_until, revoked_at"


def watch(columns: str) -> str:
    """Return what has the scopes read anew after a change of these columns of an agent."""
    return (
        "DROP TRIGGER telemetry_scopes ON telemetry_agent;"
        f" CREATE TRIGGER telemetry_scopes BEFORE INSERT OR DELETE OR UPDATE OF {columns}"
        " ON telemetry_agent FOR EACH STATEMENT EXECUTE FUNCTION telemetry_bump_scopes()"
    )


class Migration(migrations.Migration):

    dependencies = [
        ('telemetry', '0003_scope_generation'),
    ]

    operations = [
        migrations.AddField(
            model_name='agent',
            name='previous_digest',
            field=models.BinaryField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name='agent',
            name='previous_until',
            field=models.DateTimeField(editable=False, help_text='Until then the token before this one is good, too', null=True),
        ),
        migrations.RunSQL(watch(COLUMNS), watch(COLUMNS_BEFORE)),
        migrations.AddField(
            model_name='agent',
            name='refused_rows',
            field=models.BigIntegerField(default=0, help_text='Of batches of which the rest was taken'),
        ),
        migrations.AlterField(
            model_name='agent',
            name='refused_batches',
            field=models.BigIntegerField(default=0, help_text='Of which nothing was taken'),
        ),
        migrations.CreateModel(
            name='PushedRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.BinaryField(max_length=32)),
                ('received_at', models.DateTimeField()),
                ('rows', models.IntegerField()),
                ('body', models.BinaryField(help_text='Its readings; null once they are stored', null=True)),
                ('seq', models.BigIntegerField(help_text='The batch that carries them to the writer', null=True)),
                ('sent_at', models.DateTimeField(help_text='When that was last put on the stream', null=True)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='pushed_requests', to='telemetry.agent')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('body__isnull', False)), fields=['id'], name='pushed_request_waiting'), models.Index(fields=['agent', '-seq'], name='pushed_request_seq')],
                'constraints': [models.UniqueConstraint(fields=('agent', 'digest'), name='pushed_request_key')],
            },
        ),
    ]
