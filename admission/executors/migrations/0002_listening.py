from django.db import migrations, models

#: The row is made anew at the next look: then every machine has a whole lease.
FORGET = "DELETE FROM admission_executors_hearing"


class Migration(migrations.Migration):
    dependencies = [("admission_executors", "0001_initial")]

    operations = [
        migrations.RunSQL(FORGET, FORGET),
        migrations.RemoveField(model_name="hearing", name="since"),
        migrations.AddField(
            model_name="hearing",
            name="listened_s",
            field=models.FloatField(default=0, help_text="In all, s"),
        ),
        migrations.AddField(
            model_name="hearing",
            name="since_s",
            field=models.FloatField(
                default=0, help_text="When we last began to listen, by listened_s"
            ),
        ),
        migrations.AddField(
            model_name="hearing",
            name="looked_s",
            field=models.FloatField(
                default=0, help_text="The same, by the uptime of that machine, s"
            ),
        ),
        migrations.AddField(
            model_name="hearing",
            name="boot_id",
            field=models.CharField(
                blank=True, default="", help_text="Of the machine that looked", max_length=64
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="runner", name="heard_s", field=models.FloatField(default=0)
        ),
    ]
