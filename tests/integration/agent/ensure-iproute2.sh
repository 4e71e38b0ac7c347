#!/bin/sh
# Install iproute2 (ip, tc) from the distribution's packages for the tests that share a line by
# traffic class and those that cut one, where it is not there.
set -eu

if command -v tc >/dev/null 2>&1 && command -v ip >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "tests/integration/agent: SKIPPED in part, iproute2 is not installed: install it as root" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get install -y --no-install-recommends iproute2 ||
    { apt-get update && apt-get install -y --no-install-recommends iproute2; }; } \
    >/tmp/ensure-iproute2.log 2>&1; then
    echo "tests/integration/agent: SKIPPED in part, iproute2 cannot be installed:" \
        "see /tmp/ensure-iproute2.log" >&2
fi
exit 0
