"""Partitions are made, detached and dropped by functions of the tables' owner.

The application's role owns no table and can make none. These three do what it needs, on tables that
are partitioned and on what was once a partition of one, and on nothing else: names are checked and
quoted, and the search path is fixed.
"""

from django.db import migrations

HEADER = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp"

FORWARD = f"""
CREATE FUNCTION telemetry_create_partition(parent text, starts timestamptz, ends timestamptz)
RETURNS void {HEADER} AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relname = parent AND relkind = 'p'
    ) THEN
        RAISE EXCEPTION '% is no partitioned table', parent USING ERRCODE = 'wrong_object_type';
    END IF;
    EXECUTE format(
        'CREATE TABLE IF NOT EXISTS public.%I PARTITION OF public.%I FOR VALUES FROM (%L) TO (%L)',
        parent || to_char(starts AT TIME ZONE 'UTC', '"_"YYYYMMDD"_"HH24MI'), parent, starts, ends
    );
END
$$;

CREATE FUNCTION telemetry_detach_partition(parent text, partition text, renamed text)
RETURNS void {HEADER} AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_inherits
        JOIN pg_class AS above ON above.oid = inhparent
        JOIN pg_class AS below ON below.oid = inhrelid
        WHERE above.relnamespace = 'public'::regnamespace AND above.relkind = 'p'
          AND above.relname = parent AND below.relname = partition
    ) OR renamed !~ ('^' || partition || '_[0-9a-f]{{8}}$') THEN
        RAISE EXCEPTION '% is no partition of %, or cannot be called %', partition, parent, renamed
            USING ERRCODE = 'wrong_object_type';
    END IF;
    EXECUTE format('ALTER TABLE public.%I DETACH PARTITION public.%I', parent, partition);
    EXECUTE format('ALTER TABLE public.%I RENAME TO %I', partition, renamed);
END
$$;

CREATE FUNCTION telemetry_drop_partition(relation text)
RETURNS void {HEADER} AS $$
BEGIN
    -- Only the two functions above give such names.
    IF relation !~ '^[a-z_]+_[0-9]{{8}}_[0-9]{{4}}(_[0-9a-f]{{8}})?$' THEN
        RAISE EXCEPTION '% is no partition', relation USING ERRCODE = 'wrong_object_type';
    END IF;
    EXECUTE format('DROP TABLE public.%I', relation);
END
$$;

REVOKE EXECUTE ON FUNCTION
    telemetry_create_partition(text, timestamptz, timestamptz),
    telemetry_detach_partition(text, text, text),
    telemetry_drop_partition(text)
FROM PUBLIC;
"""

BACKWARD = """
DROP FUNCTION telemetry_create_partition(text, timestamptz, timestamptz);
DROP FUNCTION telemetry_detach_partition(text, text, text);
DROP FUNCTION telemetry_drop_partition(text);
"""


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0010_names_that_agents_bring")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
