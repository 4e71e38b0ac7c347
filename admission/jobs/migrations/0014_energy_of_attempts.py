from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):

    dependencies = [
        ('admission_jobs', '0013_interactive_jobs'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='energy_j',
            field=models.FloatField(blank=True, help_text='Of its GPUs, by their readings; empty: none were read', null=True),
        ),
        migrations.AddField(
            model_name='attempt',
            name='energy_share',
            field=models.FloatField(blank=True, help_text="Of its GPUs' time, what was read; empty: not added up yet", null=True),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(condition=Q(energy_share=None), fields=['ended_at'], name='attempt_unmeasured'),
        ),
    ]
