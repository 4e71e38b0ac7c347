"""Run the stand-in by itself, for kubectl: ``python -m tests.kubernetes.serve FOLDER``.

Prints the kubeconfig's path, and serves until its input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kubernetes import crds
from tests.kubernetes.server import ApiServer, Write


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with ApiServer(folder) as server:
        resource = server.store.resource("apiextensions.k8s.io", "customresourcedefinitions")
        for definition in crds.kueue():
            server.store.create(resource, "", definition, Write("tests"))
        print(server.kubeconfig(), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
