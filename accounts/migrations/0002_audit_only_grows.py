from django.db import migrations

FORWARD = """
CREATE FUNCTION accounts_auditentry_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log only grows: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_only_grows
    BEFORE UPDATE OR DELETE ON accounts_auditentry
    FOR EACH ROW EXECUTE FUNCTION accounts_auditentry_refuse();

CREATE TRIGGER audit_is_not_truncated
    BEFORE TRUNCATE ON accounts_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION accounts_auditentry_refuse();
"""

BACKWARD = """
DROP TRIGGER audit_is_not_truncated ON accounts_auditentry;
DROP TRIGGER audit_only_grows ON accounts_auditentry;
DROP FUNCTION accounts_auditentry_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
