"""Roll-ups by minute and hour, and the catalogue of the cold tier.

The roll-up tables are made like the sample tables: range-partitioned by time, written by COPY
alone. Their b-tree is unique, since a thing has one row in a bucket.
"""

import django.contrib.postgres.fields
import django.db.models.functions.datetime
from django.db import migrations, models

CREATE = """
CREATE TABLE gpu_minute (
    ts timestamptz NOT NULL,
    gpu_id int4 NOT NULL,
    readings int4 NOT NULL,
    suspect int4,
    used_j float8,
    covered_s float4,
    power_w_n int4,
    power_w float4,
    power_w_min float4,
    power_w_max float4,
    power_w_p95 float4,
    temp_c_n int4,
    temp_c float4,
    temp_c_min float4,
    temp_c_max float4,
    temp_c_p95 float4,
    temp_mem_c_n int4,
    temp_mem_c float4,
    temp_mem_c_min float4,
    temp_mem_c_max float4,
    temp_mem_c_p95 float4,
    sm_mhz_n int4,
    sm_mhz float4,
    sm_mhz_min float4,
    sm_mhz_max float4,
    sm_mhz_p95 float4,
    util_n int4,
    util float4,
    util_min float4,
    util_max float4,
    util_p95 float4,
    mem_used_n int4,
    mem_used float4,
    mem_used_max float4,
    fan_n int4,
    fan float4,
    fan_max float4,
    nvlink_tx_n int4,
    nvlink_tx float4,
    nvlink_tx_max float4,
    nvlink_rx_n int4,
    nvlink_rx float4,
    nvlink_rx_max float4,
    pcie_tx_n int4,
    pcie_tx float4,
    pcie_tx_max float4,
    pcie_rx_n int4,
    pcie_rx float4,
    pcie_rx_max float4,
    power_limit_w_n int4,
    power_limit_w float4,
    power_limit_w_min float4,
    mem_mhz_n int4,
    mem_mhz float4,
    mem_mhz_min float4,
    temp_limit_c_n int4,
    temp_limit_c float4,
    energy_j float8,
    ecc int8,
    xid int4,
    mig_instances int4,
    throttle int8,
    sw_power_cap_s float4,
    hw_slowdown_s float4,
    sync_boost_s float4,
    sw_thermal_s float4,
    hw_thermal_s float4,
    hw_power_brake_s float4,
    display_clock_s float4,
    job_id int4
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX gpu_minute_gpu_id_ts ON gpu_minute (gpu_id, ts);
CREATE INDEX gpu_minute_ts ON gpu_minute USING brin (ts);
CREATE TABLE host_minute (
    ts timestamptz NOT NULL,
    node_id int4 NOT NULL,
    readings int4 NOT NULL,
    suspect int4,
    used_j float8,
    covered_s float4,
    power_w_n int4,
    power_w float4,
    power_w_min float4,
    power_w_max float4,
    power_w_p95 float4,
    cpu_power_w_n int4,
    cpu_power_w float4,
    cpu_power_w_min float4,
    cpu_power_w_max float4,
    cpu_power_w_p95 float4,
    cpu_util_n int4,
    cpu_util float4,
    cpu_util_min float4,
    cpu_util_max float4,
    cpu_util_p95 float4,
    psi_cpu_n int4,
    psi_cpu float4,
    psi_cpu_max float4,
    psi_mem_n int4,
    psi_mem float4,
    psi_mem_max float4,
    psi_io_n int4,
    psi_io float4,
    psi_io_max float4,
    net_rx_bytes_per_s_n int4,
    net_rx_bytes_per_s float4,
    net_rx_bytes_per_s_max float4,
    net_tx_bytes_per_s_n int4,
    net_tx_bytes_per_s float4,
    net_tx_bytes_per_s_max float4,
    mem_used_n int4,
    mem_used float4,
    mem_used_max float4,
    mem_total_n int4,
    mem_total float4
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX host_minute_node_id_ts ON host_minute (node_id, ts);
CREATE INDEX host_minute_ts ON host_minute USING brin (ts);
CREATE TABLE link_minute (
    ts timestamptz NOT NULL,
    link_id int4 NOT NULL,
    readings int4 NOT NULL,
    tx_bytes_per_s_n int4,
    tx_bytes_per_s float4,
    tx_bytes_per_s_min float4,
    tx_bytes_per_s_max float4,
    tx_bytes_per_s_p95 float4,
    rx_bytes_per_s_n int4,
    rx_bytes_per_s float4,
    rx_bytes_per_s_min float4,
    rx_bytes_per_s_max float4,
    rx_bytes_per_s_p95 float4,
    latency_s_n int4,
    latency_s float4,
    latency_s_min float4,
    latency_s_max float4,
    latency_s_p95 float4,
    retransmits_per_s_n int4,
    retransmits_per_s float4,
    retransmits_per_s_min float4,
    retransmits_per_s_max float4,
    retransmits_per_s_p95 float4,
    errors int8
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX link_minute_link_id_ts ON link_minute (link_id, ts);
CREATE INDEX link_minute_ts ON link_minute USING brin (ts);
CREATE TABLE meter_minute (
    ts timestamptz NOT NULL,
    meter_id int4 NOT NULL,
    readings int4 NOT NULL,
    suspect int4,
    used_j float8,
    covered_s float4,
    power_w_n int4,
    power_w float4,
    power_w_min float4,
    power_w_max float4,
    power_w_p95 float4,
    temp_c_n int4,
    temp_c float4,
    temp_c_min float4,
    temp_c_max float4,
    energy_j float8
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX meter_minute_meter_id_ts ON meter_minute (meter_id, ts);
CREATE INDEX meter_minute_ts ON meter_minute USING brin (ts);
CREATE TABLE job_minute (
    ts timestamptz NOT NULL,
    job_id int4 NOT NULL,
    readings int4 NOT NULL,
    step_time_s_n int4,
    step_time_s float4,
    step_time_s_min float4,
    step_time_s_max float4,
    step_time_s_p95 float4,
    loss_n int4,
    loss float4,
    loss_min float4,
    loss_max float4,
    samples_per_s_n int4,
    samples_per_s float4,
    samples_per_s_min float4,
    samples_per_s_max float4,
    step int8
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX job_minute_job_id_ts ON job_minute (job_id, ts);
CREATE INDEX job_minute_ts ON job_minute USING brin (ts);
CREATE TABLE gpu_hour (
    ts timestamptz NOT NULL,
    gpu_id int4 NOT NULL,
    readings int4 NOT NULL,
    suspect int4,
    used_j float8,
    covered_s float4,
    power_w_n int4,
    power_w float4,
    power_w_min float4,
    power_w_max float4,
    power_w_p95 float4,
    temp_c_n int4,
    temp_c float4,
    temp_c_min float4,
    temp_c_max float4,
    temp_c_p95 float4,
    temp_mem_c_n int4,
    temp_mem_c float4,
    temp_mem_c_min float4,
    temp_mem_c_max float4,
    temp_mem_c_p95 float4,
    sm_mhz_n int4,
    sm_mhz float4,
    sm_mhz_min float4,
    sm_mhz_max float4,
    sm_mhz_p95 float4,
    util_n int4,
    util float4,
    util_min float4,
    util_max float4,
    util_p95 float4,
    mem_used_n int4,
    mem_used float4,
    mem_used_max float4,
    fan_n int4,
    fan float4,
    fan_max float4,
    nvlink_tx_n int4,
    nvlink_tx float4,
    nvlink_tx_max float4,
    nvlink_rx_n int4,
    nvlink_rx float4,
    nvlink_rx_max float4,
    pcie_tx_n int4,
    pcie_tx float4,
    pcie_tx_max float4,
    pcie_rx_n int4,
    pcie_rx float4,
    pcie_rx_max float4,
    power_limit_w_n int4,
    power_limit_w float4,
    power_limit_w_min float4,
    mem_mhz_n int4,
    mem_mhz float4,
    mem_mhz_min float4,
    temp_limit_c_n int4,
    temp_limit_c float4,
    energy_j float8,
    ecc int8,
    xid int4,
    mig_instances int4,
    throttle int8,
    sw_power_cap_s float4,
    hw_slowdown_s float4,
    sync_boost_s float4,
    sw_thermal_s float4,
    hw_thermal_s float4,
    hw_power_brake_s float4,
    display_clock_s float4,
    job_id int4
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX gpu_hour_gpu_id_ts ON gpu_hour (gpu_id, ts);
CREATE INDEX gpu_hour_ts ON gpu_hour USING brin (ts);
CREATE TABLE host_hour (
    ts timestamptz NOT NULL,
    node_id int4 NOT NULL,
    readings int4 NOT NULL,
    suspect int4,
    used_j float8,
    covered_s float4,
    power_w_n int4,
    power_w float4,
    power_w_min float4,
    power_w_max float4,
    power_w_p95 float4,
    cpu_power_w_n int4,
    cpu_power_w float4,
    cpu_power_w_min float4,
    cpu_power_w_max float4,
    cpu_power_w_p95 float4,
    cpu_util_n int4,
    cpu_util float4,
    cpu_util_min float4,
    cpu_util_max float4,
    cpu_util_p95 float4,
    psi_cpu_n int4,
    psi_cpu float4,
    psi_cpu_max float4,
    psi_mem_n int4,
    psi_mem float4,
    psi_mem_max float4,
    psi_io_n int4,
    psi_io float4,
    psi_io_max float4,
    net_rx_bytes_per_s_n int4,
    net_rx_bytes_per_s float4,
    net_rx_bytes_per_s_max float4,
    net_tx_bytes_per_s_n int4,
    net_tx_bytes_per_s float4,
    net_tx_bytes_per_s_max float4,
    mem_used_n int4,
    mem_used float4,
    mem_used_max float4,
    mem_total_n int4,
    mem_total float4
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX host_hour_node_id_ts ON host_hour (node_id, ts);
CREATE INDEX host_hour_ts ON host_hour USING brin (ts);
CREATE TABLE link_hour (
    ts timestamptz NOT NULL,
    link_id int4 NOT NULL,
    readings int4 NOT NULL,
    tx_bytes_per_s_n int4,
    tx_bytes_per_s float4,
    tx_bytes_per_s_min float4,
    tx_bytes_per_s_max float4,
    tx_bytes_per_s_p95 float4,
    rx_bytes_per_s_n int4,
    rx_bytes_per_s float4,
    rx_bytes_per_s_min float4,
    rx_bytes_per_s_max float4,
    rx_bytes_per_s_p95 float4,
    latency_s_n int4,
    latency_s float4,
    latency_s_min float4,
    latency_s_max float4,
    latency_s_p95 float4,
    retransmits_per_s_n int4,
    retransmits_per_s float4,
    retransmits_per_s_min float4,
    retransmits_per_s_max float4,
    retransmits_per_s_p95 float4,
    errors int8
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX link_hour_link_id_ts ON link_hour (link_id, ts);
CREATE INDEX link_hour_ts ON link_hour USING brin (ts);
CREATE TABLE meter_hour (
    ts timestamptz NOT NULL,
    meter_id int4 NOT NULL,
    readings int4 NOT NULL,
    suspect int4,
    used_j float8,
    covered_s float4,
    power_w_n int4,
    power_w float4,
    power_w_min float4,
    power_w_max float4,
    power_w_p95 float4,
    temp_c_n int4,
    temp_c float4,
    temp_c_min float4,
    temp_c_max float4,
    energy_j float8
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX meter_hour_meter_id_ts ON meter_hour (meter_id, ts);
CREATE INDEX meter_hour_ts ON meter_hour USING brin (ts);
CREATE TABLE job_hour (
    ts timestamptz NOT NULL,
    job_id int4 NOT NULL,
    readings int4 NOT NULL,
    step_time_s_n int4,
    step_time_s float4,
    step_time_s_min float4,
    step_time_s_max float4,
    step_time_s_p95 float4,
    loss_n int4,
    loss float4,
    loss_min float4,
    loss_max float4,
    samples_per_s_n int4,
    samples_per_s float4,
    samples_per_s_min float4,
    samples_per_s_max float4,
    step int8
) PARTITION BY RANGE (ts);
CREATE UNIQUE INDEX job_hour_job_id_ts ON job_hour (job_id, ts);
CREATE INDEX job_hour_ts ON job_hour USING brin (ts);
"""

DROP = """
DROP TABLE gpu_minute;
DROP TABLE host_minute;
DROP TABLE link_minute;
DROP TABLE meter_minute;
DROP TABLE job_minute;
DROP TABLE gpu_hour;
DROP TABLE host_hour;
DROP TABLE link_hour;
DROP TABLE meter_hour;
DROP TABLE job_hour;
"""


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0006_throttle_truth")]
    operations = [
        migrations.RunSQL(CREATE, DROP),
        migrations.CreateModel(
            name="DetachedPartition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("table", models.CharField(max_length=63)),
                ("relation", models.CharField(max_length=63, unique=True)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField(help_text="Not included")),
                ("moved_below", models.IntegerField(default=0, help_text="Rows of things with lower ids are in files already")),
            ],
        ),
        migrations.CreateModel(
            name="ColdFile",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("table", models.CharField(max_length=63)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField(help_text="Not included")),
                ("first_id", models.IntegerField()),
                ("last_id", models.IntegerField()),
                ("columns", django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=63), size=None)),
                ("path", models.CharField(help_text="Below the cold tier's URL", max_length=300, unique=True)),
                ("rows", models.BigIntegerField()),
                ("bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "indexes": [models.Index(fields=["table", "start"], name="cold_file_table_start")],
            },
        ),
        migrations.CreateModel(
            name="JobCarrier",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("job_id", models.BigIntegerField()),
                ("hour", models.DateTimeField()),
                ("gpu_ids", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("job_id", "hour"), name="job_carrier_key")],
            },
        ),
        migrations.CreateModel(
            name="RollupMark",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(help_text="The sample table", max_length=63)),
                ("width_s", models.IntegerField(help_text="Of the bucket: 60 or 3600")),
                ("bucket", models.DateTimeField(help_text="Its start")),
                ("blocks", django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), help_text="Ids divided by 1,024; null: all", null=True, size=None)),
                ("noted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [models.Index(fields=["source", "width_s", "bucket"], name="rollup_mark_bucket")],
            },
        ),
        migrations.CreateModel(
            name="RollupProgress",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=63)),
                ("width_s", models.IntegerField()),
                ("done_until", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("source", "width_s"), name="rollup_progress_key")],
            },
        ),
    ]

