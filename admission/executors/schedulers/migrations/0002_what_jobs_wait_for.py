from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('admission_schedulers', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='schedulerjob',
            name='start_in_s',
            field=models.FloatField(help_text='Likely wait when the comment was made', null=True),
        ),
        migrations.AddField(
            model_name='schedulerjob',
            name='is_never',
            field=models.BooleanField(default=False, help_text='It can never start as it is'),
        ),
        migrations.AddField(
            model_name='schedulerjob',
            name='is_changed',
            field=models.BooleanField(default=False, help_text='It asks for something else than when it was adopted'),
        ),
    ]
