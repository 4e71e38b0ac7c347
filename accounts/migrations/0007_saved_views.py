import accounts.edge.names
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_token_limits")]

    operations = [
        migrations.CreateModel(
            "SavedView",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("page", models.CharField(help_text="A page that has saved views", max_length=32)),
                ("name", models.CharField(max_length=200, validators=[accounts.edge.names.plain])),
                ("query", models.CharField(blank=True, help_text="What follows ? in its address", max_length=2000)),
                ("is_shared", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("owner", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="saved_views", to=settings.AUTH_USER_MODEL)),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("owner", "page", "name"), name="saved_view_once")]},
        ),
    ]
