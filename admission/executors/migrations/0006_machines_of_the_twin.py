from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admission_executors", "0005_output_of_attempts")]

    operations = [
        migrations.AddField(
            model_name="runner",
            name="is_simulated",
            field=models.BooleanField(default=False, help_text="A machine of the twin"),
        ),
    ]
