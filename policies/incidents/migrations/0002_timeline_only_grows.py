from django.db import migrations

FORWARD = """
CREATE FUNCTION incidents_timeline_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the timeline of an incident only grows: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER timeline_only_grows
    BEFORE UPDATE OR DELETE ON policies_incidents_timelineentry
    FOR EACH ROW EXECUTE FUNCTION incidents_timeline_refuse();
"""

BACKWARD = """
DROP TRIGGER timeline_only_grows ON policies_incidents_timelineentry;
DROP FUNCTION incidents_timeline_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("policies_incidents", "0001_initial")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
