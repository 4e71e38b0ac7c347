from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admission_jobs", "0010_users_of_requests")]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="returns_to",
            field=models.JSONField(
                blank=True, help_text="The placement that is kept for it while it moves", null=True
            ),
        ),
        migrations.AddField(
            model_name="phase",
            name="returns_by",
            field=models.DateTimeField(blank=True, help_text="It is kept until then", null=True),
        ),
    ]
