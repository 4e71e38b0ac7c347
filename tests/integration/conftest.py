"""What several integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.stack import Stack, running
from telemetry import stream


@pytest.fixture(scope="module", autouse=True)
def nothing_in_valkey() -> None:
    """No file finds in Valkey what another left: which file comes before is up to chance."""
    stream.connection().flushall()


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The whole of Headroom as processes of its own, with no fleet yet."""
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def token_file(stack: Stack) -> Path:
    """A file with an API token of an operator of ``stack``."""
    path = stack.state_dir / "operator-token"
    path.write_text(stack.credential("operator_token"))
    return path
