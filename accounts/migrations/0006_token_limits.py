import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_sign_on_and_second_factor")]

    # Tokens of before keep what they may: no end, and all that their user may.
    operations = [
        migrations.AddField("apitoken", "expires_at", models.DateTimeField(blank=True, help_text="Empty: never", null=True)),
        migrations.AddField("apitoken", "scope", django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=32), blank=True, help_text="Capabilities; empty: all of its user's", null=True, size=None)),
        migrations.AddField("apitoken", "last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
        migrations.AddField("apitoken", "last_used_from", models.GenericIPAddressField(blank=True, editable=False, null=True)),
    ]
