from __future__ import annotations

from collections.abc import Iterator

import pytest

from headroom.agent.spool import Spool
from headroom.client import Client
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.fake_server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.url, "hra_secret", timeout_s=5) as made:
        yield made


@pytest.fixture
def spool() -> Iterator[Spool]:
    made = Spool(":memory:")
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()
