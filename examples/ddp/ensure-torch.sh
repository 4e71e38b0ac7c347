#!/bin/sh
# Tests of the example train with PyTorch. Install it where it is missing; where that fails, those
# tests are skipped, and say so. Its build for CPUs is 200 MB and the usual one several GB: pip's own
# settings (PIP_INDEX_URL, PIP_FIND_LINKS) choose, as its installation guide says.
set -eu

python=$1
requirements=$(dirname "$0")/requirements.txt

if "$python" -c 'import torch' 2>/dev/null; then
    exit 0
fi
echo "Installing PyTorch for the tests of examples/ddp …"
"$python" -m pip install --quiet --disable-pip-version-check -r "$requirements" ||
    echo "PyTorch could not be installed: tests of examples/ddp are skipped." >&2
