from django.db import migrations

FORWARD = """
CREATE FUNCTION policies_playbooks_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.name, NEW.number, NEW.text, NEW.author, NEW.created_at)
        IS DISTINCT FROM (OLD.name, OLD.number, OLD.text, OLD.author, OLD.created_at)
    THEN
        RAISE EXCEPTION 'a version of a playbook never changes: write a new one'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER playbook_version_does_not_change
    BEFORE UPDATE ON policies_playbooks_playbookversion
    FOR EACH ROW EXECUTE FUNCTION policies_playbooks_refuse();
"""

BACKWARD = """
DROP TRIGGER playbook_version_does_not_change ON policies_playbooks_playbookversion;
DROP FUNCTION policies_playbooks_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("policies_playbooks", "0001_initial")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
