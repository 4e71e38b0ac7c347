#!/bin/sh
# Browser tests drive the system's Chromium. Where there is none and this user may install packages,
# install Debian's; else say what is missing (HEADROOM_SKIP_BROWSER=1 leaves the browser tests out).
set -eu

if [ "${HEADROOM_SKIP_BROWSER:-}" = 1 ] || command -v chromium >/dev/null 2>&1; then
    exit 0
fi
if command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        as_root=""
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        as_root="no"
    fi
    if [ "$as_root" != no ]; then
        echo "Installing Chromium for the browser tests …"
        $as_root apt-get update -qq
        $as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends chromium >/dev/null
        exit 0
    fi
fi
echo "The browser tests need Chromium: install your system's 'chromium' package," >&2
echo "or leave them out with HEADROOM_SKIP_BROWSER=1 make test" >&2
exit 1
