from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admission_executors", "0006_machines_of_the_twin")]

    operations = [
        migrations.AddField(
            model_name="runner", name="lease_s", field=models.FloatField(null=True)
        ),
    ]
