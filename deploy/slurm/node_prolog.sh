#!/bin/sh
# Prolog of a node: names the job of each of its GPUs to dcgm-exporter (--hpc-job-mapping-dir), so
# that dashboards have it as a label. Beside your own, as Prolog= takes several.

DIR=${DCGM_HPC_JOB_MAPPING_DIR:-/var/run/dcgm-job-maps}

[ -n "$SLURM_JOB_GPUS" ] && [ -d "$DIR" ] || exit 0
for gpu in $(echo "$SLURM_JOB_GPUS" | tr ',' ' '); do
    grep -qx "$SLURM_JOB_ID" "$DIR/$gpu" 2>/dev/null || echo "$SLURM_JOB_ID" >>"$DIR/$gpu"
done
exit 0
