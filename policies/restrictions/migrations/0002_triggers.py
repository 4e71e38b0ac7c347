from django.db import migrations

# The clock makes a number that no earlier life of the table can have had; the GREATEST makes two
# changes within one microsecond differ.
BUMP = """
CREATE FUNCTION policies_restrictions_bump() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO policies_restrictions_restrictiongeneration AS held (id, number)
    VALUES (1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    ON CONFLICT (id) DO UPDATE SET number = GREATEST(held.number + 1, EXCLUDED.number);
    RETURN NULL;
END $$;

CREATE TRIGGER restriction_generation
    BEFORE INSERT OR UPDATE OR DELETE ON policies_restrictions_restriction
    FOR EACH STATEMENT EXECUTE FUNCTION policies_restrictions_bump();
"""

UNBUMP = """
DROP TRIGGER restriction_generation ON policies_restrictions_restriction;
DROP FUNCTION policies_restrictions_bump();
"""

LEDGER = """
CREATE FUNCTION policies_restrictions_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger of restrictions only grows: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER restriction_ledger_only_grows
    BEFORE UPDATE OR DELETE ON policies_restrictions_restrictionevent
    FOR EACH ROW EXECUTE FUNCTION policies_restrictions_refuse();
"""

UNLEDGER = """
DROP TRIGGER restriction_ledger_only_grows ON policies_restrictions_restrictionevent;
DROP FUNCTION policies_restrictions_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("policies_restrictions", "0001_initial")]

    operations = [
        migrations.RunSQL(BUMP, UNBUMP),
        migrations.RunSQL(LEDGER, UNLEDGER),
    ]
