"""What several integration tests share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.stack import Stack, running
from fleet.cache import Cache
from telemetry import stream
from tests.builders.memory import forget_all


@pytest.fixture(scope="module", autouse=True)
def nothing_in_valkey() -> None:
    """No file finds in Valkey what another left: which file comes before is up to chance."""
    stream.connection().flushall()


@pytest.fixture
def clean_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty Valkey, a process that knows nothing of the last test, and no worker.

    Folders whose tests want that of all take it over, with what else they want.
    """
    stream.connection().flushall()
    forget_all()
    # Tests drain by hand.
    monkeypatch.setattr("telemetry.tasks.write.delay", lambda shard: None)
    yield
    forget_all()


@pytest.fixture
def nothing_turns_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process keeps for a second or two stays young, however slowly the test goes on.

    For who counts queries. What is asked to look now (``max_age_s=0``, ``recheck``) does so.
    """
    is_young = Cache._young

    def young(self: Cache[Any], of: Hashable, limit_s: float, at: float) -> Any:
        return is_young(self, of, math.inf if limit_s > 0 else limit_s, at)

    monkeypatch.setattr(Cache, "_young", young)


@pytest.fixture
def django_assert_num_queries(nothing_turns_over: None, django_assert_num_queries: Any) -> Any:
    """As pytest-django's, with nothing that turns over."""
    return django_assert_num_queries


@pytest.fixture
def django_assert_max_num_queries(
    nothing_turns_over: None, django_assert_max_num_queries: Any
) -> Any:
    """As pytest-django's, with nothing that turns over."""
    return django_assert_max_num_queries


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
