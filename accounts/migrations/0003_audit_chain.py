import django.db.models.deletion
from django.db import migrations, models

#: The key of the lock under which entries are linked: any number.
LOCK = 0x41554454

# Text is what is hashed, and what is exported: who checks it needs no knowledge of Postgres.
CONTENT = """
CREATE FUNCTION accounts_audit_content(entry accounts_auditentry) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT jsonb_build_object(
        'id', entry.id,
        'at', to_char(entry.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'actor', entry.actor, 'action', entry.action, 'target', entry.target,
        'detail', entry.detail
    )::text
$$;
"""

# Only at the end of a transaction: others wait for its commit, not for its work. Whoever comes
# after the lock sees the head that the one before has committed, since each statement here has a
# snapshot of its own; under any other isolation the key of the table refuses a fork.
LINK = f"""
CREATE FUNCTION accounts_audit_append(entry accounts_auditentry) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    head accounts_auditlink;
    before bytea;
BEGIN
    SELECT * INTO head FROM accounts_auditlink ORDER BY position DESC LIMIT 1;
    before := coalesce(head.hash, decode(repeat('00', 32), 'hex'));
    INSERT INTO accounts_auditlink (position, entry_id, previous, hash)
    VALUES (
        coalesce(head.position, 0) + 1, entry.id, before,
        sha256(before || convert_to(accounts_audit_content(entry), 'UTF8'))
    );
END
$$;

CREATE FUNCTION accounts_audit_link() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock({LOCK});
    PERFORM accounts_audit_append(NEW);
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER audit_is_linked AFTER INSERT ON accounts_auditentry
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION accounts_audit_link();

CREATE TRIGGER audit_chain_only_grows BEFORE UPDATE OR DELETE ON accounts_auditlink
    FOR EACH ROW EXECUTE FUNCTION accounts_auditentry_refuse();
CREATE TRIGGER audit_chain_is_not_truncated BEFORE TRUNCATE ON accounts_auditlink
    FOR EACH STATEMENT EXECUTE FUNCTION accounts_auditentry_refuse();

REVOKE EXECUTE ON FUNCTION accounts_audit_append(accounts_auditentry), accounts_audit_link()
FROM PUBLIC;
"""

UNLINK = """
DROP TRIGGER audit_is_linked ON accounts_auditentry;
DROP FUNCTION accounts_audit_link();
DROP FUNCTION accounts_audit_append(accounts_auditentry);
"""

EXISTING = f"""
DO $$
DECLARE
    entry accounts_auditentry;
BEGIN
    PERFORM pg_advisory_xact_lock({LOCK});
    FOR entry IN SELECT * FROM accounts_auditentry ORDER BY id LOOP
        PERFORM accounts_audit_append(entry);
    END LOOP;
END
$$;
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_audit_only_grows")]

    operations = [
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entry", models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="link", to="accounts.auditentry")),
                ("previous", models.BinaryField(max_length=32)),
                ("hash", models.BinaryField(max_length=32)),
            ],
            options={"ordering": ["position"]},
        ),
        migrations.CreateModel(
            name="AuditShipment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("position", models.BigIntegerField(default=0, help_text="of the last link that arrived")),
                ("shipped_at", models.DateTimeField(blank=True, null=True)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("last_error", models.CharField(blank=True, max_length=500)),
            ],
        ),
        migrations.RunSQL(CONTENT, "DROP FUNCTION accounts_audit_content(accounts_auditentry);"),
        migrations.RunSQL(LINK, UNLINK),
        migrations.RunSQL(EXISTING, migrations.RunSQL.noop),
    ]
