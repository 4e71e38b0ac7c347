"""The agent on a machine whose GPUs are a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.stack import Stack
from headroom.agent.nvml import NvmlSource
from headroom.client import Client
from tests.standin import nvml as standin
from tests.standin.nvml import StandIn
from tests.unit.headroom.builders import Clock


@pytest.fixture
def machine(tmp_path: Path) -> StandIn:
    """A machine with two GPUs, for processes and, with ``nvml``, for this one."""
    return StandIn(tmp_path, gpus=2)


@pytest.fixture
def nvml(machine: StandIn, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real ``pynvml``, in this process, on ``machine``."""
    import pynvml

    standin.load()
    monkeypatch.setenv("NVML_STANDIN_CONTROL", str(machine.control))
    return pynvml


@pytest.fixture
def operator(stack: Stack, tmp_path: Path) -> Iterator[Client]:
    """Speaks for an operator to the server that a test has as ``stack``."""
    (tmp_path / "operator-token").write_text(stack.credential("operator_token"))
    with Client(stack.url, (tmp_path / "operator-token").read_text(), timeout_s=30) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_source(nvml: Any, clock: Clock) -> Iterator[Callable[..., NvmlSource]]:
    """Return a function that opens the GPUs of ``machine``; they are closed in the end."""
    opened: list[NvmlSource] = []

    def make(**options: Any) -> NvmlSource:
        opened.append(NvmlSource(nvml, monotonic=clock, **options))
        return opened[-1]

    yield make
    for source in opened:
        source.close()


@pytest.fixture
def source(open_source: Callable[..., NvmlSource]) -> NvmlSource:
    return open_source()
