#!/bin/sh
# Hostile jobs of the tests run as users who cannot enter anybody's home. Where the only Python lies
# in one and this user may install packages, install Debian's; else say what is missing.
set -eu

if [ -x /usr/bin/python3 ] || [ "$(id -u)" != 0 ]; then
    exit 0
fi
if command -v apt-get >/dev/null 2>&1; then
    echo "Installing Debian's Python for the tests of jobs …"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends python3-minimal >/dev/null
    exit 0
fi
echo "The tests of jobs need a Python for all users: install your system's 'python3'." >&2
exit 1
