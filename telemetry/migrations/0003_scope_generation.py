from django.db import migrations, models

# The clock makes a number that no earlier life of the table can have had; the GREATEST makes two
# changes within one microsecond differ.
BUMP = """
CREATE FUNCTION telemetry_bump_scopes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO telemetry_scopegeneration AS held (id, number)
    VALUES (1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (id) DO UPDATE SET number = GREATEST(held.number + 1, EXCLUDED.number);
    RETURN NULL;
END $$
"""

# What a drain notes of an agent with every batch is in none of these columns.
TRIGGERS = {
    "telemetry_agent": "INSERT OR DELETE OR UPDATE OF name, digest, revoked_at",
    "telemetry_agent_nodes": "INSERT OR DELETE OR UPDATE",
    "telemetry_agent_sites": "INSERT OR DELETE OR UPDATE",
}


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0002_sample_tables")]

    operations = [
        migrations.CreateModel(
            name="ScopeGeneration",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("number", models.BigIntegerField()),
            ],
        ),
        migrations.RunSQL(BUMP, "DROP FUNCTION telemetry_bump_scopes()"),
        *(
            migrations.RunSQL(
                f"CREATE TRIGGER telemetry_scopes BEFORE {events} ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION telemetry_bump_scopes()",
                f"DROP TRIGGER telemetry_scopes ON {table}",
            )
            for table, events in TRIGGERS.items()
        ),
    ]
