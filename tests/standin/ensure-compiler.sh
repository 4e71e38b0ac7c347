#!/bin/sh
# Tests of the agent compile a stand-in for NVML. Where there is no C compiler and this user may
# install packages, install Debian's; else say what is missing.
set -eu

for compiler in "${CC:-}" cc gcc clang; do
    if [ -n "$compiler" ] && command -v "$compiler" >/dev/null 2>&1; then
        exit 0
    fi
done
if command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        as_root=""
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        as_root="no"
    fi
    if [ "$as_root" != no ]; then
        echo "Installing a C compiler for the tests of the agent …"
        $as_root apt-get update -qq
        $as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null
        exit 0
    fi
fi
echo "The tests of the agent need a C compiler: install your system's 'gcc' package." >&2
exit 1
