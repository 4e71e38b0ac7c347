"""Storage probes, Xid errors out of kernel logs, and the number of MIG instances."""

import django.db.models.deletion
from django.db import migrations, models

# Adding a column that may be null to a partitioned table touches no row.
CREATE = """
ALTER TABLE gpu_sample ADD COLUMN mig_instances int4;
CREATE TABLE storage_sample (
    ts timestamptz NOT NULL,
    mount_id int4 NOT NULL,
    node_id int4 NOT NULL,
    fsync_s float4,
    read_s float4
) PARTITION BY RANGE (ts);
CREATE INDEX storage_sample_mount_id_ts ON storage_sample (mount_id, ts);
CREATE INDEX storage_sample_ts ON storage_sample USING brin (ts);
"""

DROP = """
DROP TABLE storage_sample;
ALTER TABLE gpu_sample DROP COLUMN mig_instances;
"""


class Migration(migrations.Migration):
    dependencies = [("fleet", "0002_generation_triggers"), ("telemetry", "0004_ways_in")]
    operations = [
        migrations.RunSQL(CREATE, DROP),
        migrations.CreateModel(
            name="Mount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="mounts", to="fleet.node")),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("node", "name"), name="mount_key")]},
        ),
        migrations.CreateModel(
            name="XidEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("ts", models.DateTimeField(help_text="Time of the line")),
                ("xid", models.IntegerField()),
                ("pci", models.CharField(blank=True, help_text="Bus id that the line gives", max_length=50)),
                ("text", models.CharField(blank=True, max_length=500)),
                ("gpu", models.ForeignKey(blank=True, help_text="None where the line names no GPU that is known", null=True, on_delete=django.db.models.deletion.CASCADE, related_name="xid_events", to="fleet.gpu")),
                ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="xid_events", to="fleet.node")),
            ],
            options={
                "ordering": ["-ts", "-id"],
                "indexes": [models.Index(fields=["-ts"], name="xid_event_ts"), models.Index(fields=["gpu", "-ts"], name="xid_event_gpu_ts")],
                "constraints": [models.UniqueConstraint(fields=("node", "ts", "xid", "gpu"), name="xid_event_key", nulls_distinct=False)],
            },
        ),
    ]
