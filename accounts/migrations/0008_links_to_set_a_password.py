from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0007_saved_views")]

    operations = [
        migrations.AddField(
            "User", "link_made_at", models.DateTimeField(editable=False, null=True)
        ),
    ]
