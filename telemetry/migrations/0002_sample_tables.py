"""The sample tables: range-partitioned by time, written by COPY alone (telemetry/samples.py).

The b-tree finds one thing over a time, the BRIN index one time over all things.
"""

from django.db import migrations

CREATE = """
CREATE TABLE gpu_sample (
    ts timestamptz NOT NULL,
    gpu_id int4 NOT NULL,
    energy_j float8,
    power_w float4,
    power_limit_w float4,
    temp_c float4,
    temp_mem_c float4,
    temp_limit_c float4,
    sm_mhz float4,
    mem_mhz float4,
    util float4,
    fan float4,
    nvlink_tx float4,
    nvlink_rx float4,
    pcie_tx float4,
    pcie_rx float4,
    mem_used int8,
    throttle int8,
    throttle_sw_power_cap_ns int8,
    throttle_hw_slowdown_ns int8,
    throttle_sync_boost_ns int8,
    throttle_sw_thermal_ns int8,
    throttle_hw_thermal_ns int8,
    throttle_hw_power_brake_ns int8,
    ecc int8,
    xid int4,
    job_id int4
) PARTITION BY RANGE (ts);
CREATE INDEX gpu_sample_gpu_id_ts ON gpu_sample (gpu_id, ts);
CREATE INDEX gpu_sample_ts ON gpu_sample USING brin (ts);
CREATE TABLE host_sample (
    ts timestamptz NOT NULL,
    node_id int4 NOT NULL,
    cpu_util float4,
    psi_cpu float4,
    psi_mem float4,
    psi_io float4,
    power_w float4,
    cpu_power_w float4,
    net_rx_bytes_per_s float4,
    net_tx_bytes_per_s float4,
    mem_used int8,
    mem_total int8
) PARTITION BY RANGE (ts);
CREATE INDEX host_sample_node_id_ts ON host_sample (node_id, ts);
CREATE INDEX host_sample_ts ON host_sample USING brin (ts);
CREATE TABLE link_sample (
    ts timestamptz NOT NULL,
    link_id int4 NOT NULL,
    latency_s float8,
    tx_bytes_per_s float4,
    rx_bytes_per_s float4,
    retransmits_per_s float4,
    errors int8
) PARTITION BY RANGE (ts);
CREATE INDEX link_sample_link_id_ts ON link_sample (link_id, ts);
CREATE INDEX link_sample_ts ON link_sample USING brin (ts);
CREATE TABLE meter_sample (
    ts timestamptz NOT NULL,
    meter_id int4 NOT NULL,
    power_w float8,
    energy_j float8,
    temp_c float4
) PARTITION BY RANGE (ts);
CREATE INDEX meter_sample_meter_id_ts ON meter_sample (meter_id, ts);
CREATE INDEX meter_sample_ts ON meter_sample USING brin (ts);
CREATE TABLE job_sample (
    ts timestamptz NOT NULL,
    job_id int4 NOT NULL,
    loss float8,
    step_time_s float8,
    samples_per_s float8,
    step int8
) PARTITION BY RANGE (ts);
CREATE INDEX job_sample_job_id_ts ON job_sample (job_id, ts);
CREATE INDEX job_sample_ts ON job_sample USING brin (ts);
"""

DROP = """
DROP TABLE gpu_sample;
DROP TABLE host_sample;
DROP TABLE link_sample;
DROP TABLE meter_sample;
DROP TABLE job_sample;
"""


class Migration(migrations.Migration):
    dependencies = [("telemetry", "0001_initial")]
    operations = [migrations.RunSQL(CREATE, DROP)]
