"""An API server that tests share, one for a test alone, or a real one.

``HEADROOM_TEST_KUBECONFIG`` names a kubeconfig of a real API server (kube-apiserver and etcd are
enough, no controller has to run): tests that share a server run against it, each in namespaces of
its own. Those that reach into the stand-in are skipped then.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import crds
from tests.kubernetes.client import Client, Refused
from tests.kubernetes.objects import make_namespace
from tests.kubernetes.server import ApiServer

#: Names the kubeconfig of a real API server that tests may write to.
KUBECONFIG = "HEADROOM_TEST_KUBECONFIG"


@pytest.fixture
def api_server(tmp_path: Path) -> Iterator[ApiServer]:
    """A stand-in with Kueue's kinds, for tests that have to reach into it."""
    if os.environ.get(KUBECONFIG):
        pytest.skip(f"reaches into the stand-in, and {KUBECONFIG} names a real API server")
    with ApiServer(tmp_path) as server:
        install(Client(server.kubeconfig()))
        server.calls.clear()
        yield server


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """How an API server is reached that tests share."""
    given = os.environ.get(KUBECONFIG)
    if given:
        install(Client(Path(given)))
        yield Path(given)
        return
    with ApiServer(tmp_path_factory.mktemp("kubernetes")) as server:
        install(Client(server.kubeconfig()))
        yield server.kubeconfig()


@pytest.fixture(scope="session")
def client(kubeconfig: Path) -> Client:
    """An administrator's client of the API server that tests share."""
    return Client(kubeconfig)


@pytest.fixture
def namespace(client: Client) -> Iterator[str]:
    """A namespace that no other test writes to."""
    name = f"t-{secrets.token_hex(4)}"
    client.create(make_namespace(name))
    yield name
    client.delete("Namespace", name)


def install(client: Client) -> None:
    """Give an API server Kueue's kinds, unless it has them."""
    for definition in crds.kueue():
        try:
            client.create(definition)
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise
