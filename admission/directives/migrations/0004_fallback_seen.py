from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admission_directives", "0003_moves")]

    operations = [
        migrations.AddField(
            model_name="jobfallback",
            name="seen_at",
            field=models.DateTimeField(help_text="When that was looked at last", null=True),
        ),
    ]
