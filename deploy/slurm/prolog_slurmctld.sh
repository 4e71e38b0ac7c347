#!/bin/sh
# PrologSlurmctld: lets no job start under a lease that was for an earlier start.
# See docs/how-to/turn-on-beside-slurm.md. Ends with 1 to have Slurm put the job back.
#
# Slurm starts a job again by itself when a node fails under it. The bridge holds it then, at its
# next look; until that look this does.

RUN_DIR=${HEADROOM_SLURM_RUN_DIR:-/run/headroom-slurm}
# "closed": such a job is put back. "open": while Headroom is away it starts.
WHEN_AWAY=${HEADROOM_SLURM_WHEN_AWAY:-closed}
# Partitions whose jobs need no lease, with spaces.
EXEMPT=${HEADROOM_SLURM_EXEMPT:-}

for partition in $EXEMPT; do
    [ "$partition" = "$SLURM_JOB_PARTITION" ] && exit 0
done
if [ "$WHEN_AWAY" = open ]; then
    until=$(cat "$RUN_DIR/until" 2>/dev/null || echo 0)
    [ "$(date +%s)" -ge "$until" ] && exit 0
fi
# Jobs that were never held (without GPUs, or let go by an administrator) have no lease to break.
lease=$(cat "$RUN_DIR/leases/$SLURM_JOB_ID" 2>/dev/null) || exit 0
# 22.05 says SLURM_JOB_RESTART_COUNT here, others SLURM_RESTART_COUNT.
[ "$lease" = "${SLURM_JOB_RESTART_COUNT:-${SLURM_RESTART_COUNT:-0}}" ] || exit 1
exit 0
