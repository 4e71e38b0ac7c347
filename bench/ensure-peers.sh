#!/bin/sh
# `python -m bench telemetry` stores the same readings in VictoriaMetrics and in Prometheus. Where
# they are not on the PATH, Debian's packages are unpacked into build/peers. They are not installed:
# that would start a server on this machine, and needs root. "sh bench/ensure-peers.sh" does nothing
# where both are there; "sh bench/ensure-peers.sh prometheus", for tests, looks for that alone.
set -eu

peers="$(cd "$(dirname "$0")/.." && pwd)/build/peers"

missing=""
for program in ${*:-victoria-metrics prometheus}; do
    if ! command -v "$program" >/dev/null 2>&1 && ! [ -x "$peers/usr/bin/$program" ]; then
        missing="$missing $program"
    fi
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    echo "Missing:$missing. Put them on the PATH: 'victoria-metrics' and 'prometheus' are packages" >&2
    echo "of Debian and Ubuntu; others find them at their projects' sites." >&2
    exit 1
fi

mkdir -p "$peers"
cd "$peers"
for program in $missing; do
    if ! apt-cache show "$program" >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        apt-get update -qq
    fi
    echo "Unpacking Debian's $program into build/peers …"
    if ! apt-get download -qq -o APT::Sandbox::User="$(id -un)" "$program"; then
        echo "apt-get cannot download '$program': run 'apt-get update' as root, or install it." >&2
        exit 1
    fi
    dpkg-deb --extract "$program"_*.deb .
    rm -f "$program"_*.deb
done
