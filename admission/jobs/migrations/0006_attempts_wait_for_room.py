from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('admission_jobs', '0005_attempts_are_dispatched')]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='room_by',
            field=models.DateTimeField(
                blank=True,
                help_text='Power is being taken back for it until then; empty: it was handed over',
                null=True,
            ),
        ),
    ]
