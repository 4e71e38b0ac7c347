#!/bin/sh
# Install Slurm from the distribution's packages for the tests that run one, where it is not there.
# Nothing is started here: tests start clusters of their own, in folders of their own.
set -eu

need="slurmctld slurmd squeue scontrol munged"
has_all() {
    for each in $need; do
        command -v "$each" >/dev/null 2>&1 || [ -x "/usr/sbin/$each" ] || return 1
    done
}

if has_all; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "tests/slurm: SKIPPED, Slurm is not installed: install slurmctld slurmd slurm-client" \
        "slurm-wlm-basic-plugins munge as root" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge"
# The packages' services stay off: systemctl and init scripts are no part of the tests.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    made=yes
fi
# shellcheck disable=SC2086
if ! { apt-get install -y --no-install-recommends $packages ||
    { apt-get update && apt-get install -y --no-install-recommends $packages; }; } \
    >/tmp/ensure-slurm.log 2>&1; then
    echo "tests/slurm: SKIPPED, Slurm cannot be installed: see /tmp/ensure-slurm.log" >&2
fi
[ -z "$made" ] || rm -f "$policy"
exit 0
