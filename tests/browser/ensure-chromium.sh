#!/bin/sh
# Browser tests drive Chromium: its headless shell where there is one, else the system's browser,
# which takes several times the work. Where this user may install packages, install Debian's shell,
# or the browser where there is no such package; else say what is missing
# (HEADROOM_SKIP_BROWSER=1 leaves the browser tests out).
set -eu

if [ "${HEADROOM_SKIP_BROWSER:-}" = 1 ] || command -v chromium-headless-shell >/dev/null 2>&1; then
    exit 0
fi

as_root="no"
if command -v apt-get >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        as_root=""
    elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    fi
fi

install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends --no-remove "$1" >/dev/null
}

if command -v chromium >/dev/null 2>&1; then
    # Of the browser's own version, so that what is installed stays as it is.
    version=$(dpkg-query -W -f '${Version}' chromium 2>/dev/null || true)
    if [ "$as_root" != no ] && [ -n "$version" ]; then
        echo "Installing Chromium's headless shell for the browser tests …"
        install "chromium-headless-shell=$version" 2>/dev/null || true
    fi
    exit 0
fi
if [ "$as_root" != no ]; then
    echo "Installing Chromium for the browser tests …"
    $as_root apt-get update -qq
    install chromium-headless-shell 2>/dev/null || install chromium
    exit 0
fi
echo "The browser tests need Chromium: install your system's 'chromium' package," >&2
echo "or leave them out with HEADROOM_SKIP_BROWSER=1 make test" >&2
exit 1
