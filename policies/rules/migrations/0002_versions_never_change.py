from django.db import migrations

ADD = """
CREATE FUNCTION policies_rules_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'version % of rule % never changes: make a new one', OLD.number, OLD.rule_id
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER rule_version_never_changes
BEFORE UPDATE ON policies_rules_ruleversion FOR EACH ROW
WHEN (
    (OLD.rule_id, OLD.number, OLD.text, OLD.author, OLD.created_at)
    IS DISTINCT FROM (NEW.rule_id, NEW.number, NEW.text, NEW.author, NEW.created_at)
    OR (OLD.state = 'retired' AND NEW.state <> 'retired')
)
EXECUTE FUNCTION policies_rules_refuse();
"""
REMOVE = """
DROP TRIGGER rule_version_never_changes ON policies_rules_ruleversion;
DROP FUNCTION policies_rules_refuse();
"""


class Migration(migrations.Migration):

    dependencies = [("policies_rules", "0001_initial")]

    operations = [migrations.RunSQL(ADD, REMOVE)]
