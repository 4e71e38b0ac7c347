from django.db import migrations

TABLES = (
    "fleet_coolingzone",
    "fleet_gpu",
    "fleet_hardwaremodel",
    "fleet_link",
    "fleet_meter",
    "fleet_node",
    "fleet_powerdomain",
    "fleet_rack",
    "fleet_site",
    "fleet_storageendpoint",
)

# The clock makes a number that no earlier life of the table can have had; the GREATEST makes two
# changes within one microsecond differ.
BUMP = """
CREATE FUNCTION fleet_bump_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_inventorygeneration AS held (id, number)
    VALUES (1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (id) DO UPDATE SET number = GREATEST(held.number + 1, EXCLUDED.number);
    RETURN NULL;
END $$
"""

# BEFORE, for the lock on the one row: writers of the inventory then queue up before they have
# locked anything else, and two of them cannot hold what the other needs.
TRIGGER = """
CREATE TRIGGER fleet_generation BEFORE INSERT OR UPDATE OR DELETE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION fleet_bump_generation()
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]

    operations = [
        migrations.RunSQL(BUMP, "DROP FUNCTION fleet_bump_generation()"),
        *(
            migrations.RunSQL(
                TRIGGER.format(table=table), f"DROP TRIGGER fleet_generation ON {table}"
            )
            for table in TABLES
        ),
    ]
