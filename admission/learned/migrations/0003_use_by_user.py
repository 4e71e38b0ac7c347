import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('admission_jobs', '0006_attempts_wait_for_room'),
        ('admission_learned', '0002_learned_draws'),
    ]

    operations = [
        migrations.CreateModel(
            name='UserUse',
            fields=[
                ('id', models.BigAutoField(
                    auto_created=True, primary_key=True, serialize=False, verbose_name='ID'
                )),
                ('user', models.CharField(help_text='As jobs name who submitted them', max_length=150)),
                ('used_gpu_s', models.FloatField(
                    default=0.0, help_text='GPU seconds, older ones counting less'
                )),
                ('used_at', models.DateTimeField(null=True)),
                ('project', models.ForeignKey(
                    on_delete=django.db.models.deletion.CASCADE,
                    related_name='+',
                    to='admission_jobs.project',
                )),
            ],
            options={
                'constraints': [
                    models.UniqueConstraint(
                        fields=('project', 'user'), name='user_use_of_project'
                    ),
                ],
            },
        ),
    ]
