#!/bin/sh
# Epilog of a node: takes the job off its GPUs again. See node_prolog.sh.

DIR=${DCGM_HPC_JOB_MAPPING_DIR:-/var/run/dcgm-job-maps}

[ -d "$DIR" ] || exit 0
for file in "$DIR"/[0-9]*; do
    [ -f "$file" ] || continue
    if grep -qx "$SLURM_JOB_ID" "$file"; then
        grep -vx "$SLURM_JOB_ID" "$file" >"$file.new$SLURM_JOB_ID"
        # Another job may share the GPU: what is left stays.
        if [ -s "$file.new$SLURM_JOB_ID" ]; then
            mv "$file.new$SLURM_JOB_ID" "$file"
        else
            rm -f "$file.new$SLURM_JOB_ID" "$file"
        fi
    fi
done
exit 0
