"""Runs of a small job under real faults of this machine."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from lab.matrix import reading
from lab.matrix.judging import is_of_pace
from lab.matrix.leases import Journal
from lab.matrix.machine import Machine
from lab.matrix.playing import Subject
from lab.matrix.result import Cell, MatrixResult
from lab.matrix.running import Plan, holding, run_matrix
from lab.matrix.scenario import Scenario

TOY = Path(__file__).with_name("toy.py")
Play = Callable[..., MatrixResult]


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of leases, of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "headroom" / "matrix"


@pytest.fixture
def journal(journals: Path) -> Iterator[Journal]:
    with holding() as made:
        yield made


def run_toy(
    journal: Journal, folder: Path, *scenarios: str, wrong: tuple[str, ...] = (), repeat: int = 1
) -> MatrixResult:
    """Run the toy under scenarios that are given as YAML, with times in hundredths of its steps."""
    standard = [reading.read(text.encode()) for text in scenarios]
    subject = Subject((sys.executable, str(TOY), *wrong))
    plan = Plan(standard=standard, repeat=repeat, timeout_s=60)
    return run_matrix(subject, plan, folder=folder, journal=journal, progress=lambda _: None)


@pytest.fixture
def play(journal: Journal, tmp_path: Path) -> Play:
    """Return :func:`run_toy` in a folder of this test."""
    return functools.partial(run_toy, journal, tmp_path / "out")


def cell(result: MatrixResult, name: str) -> Cell:
    return next(each for each in result.cells if each.scenario == name)


def value(found: Cell, name: str) -> float:
    said = next(each for each in found.measures if each.name == name)
    assert said.value is not None, said.said
    return said.value


def scenario(name: str, fault: str, *expect: str) -> str:
    checks = "".join(f"  - at_most: {{{each}}}\n" for each in expect)
    return (
        f"name: {name}\ntitle: {name}\nruns_on: [command]\nduration: 200s\n"
        f"faults:\n  - {fault}\nexpect:\n"
        "  - at_most: {measure: failed_exits, value: 0}\n"
        "  - at_most: {measure: loss_difference, value: 0}\n" + checks
    )


def unhurried(scenario: Scenario) -> Scenario:
    """Return a scenario that asks nothing of throughput: other tests may take the machine's time.

    So it need not be known how much the machine varies, and one run without faults is enough.
    """
    expect = tuple(each for each in scenario.expect if not is_of_pace(each))
    return replace(scenario, expect=expect)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with holding(tmp_path / "tries") as journal:
        yield Machine(journal, tmp_path)


@pytest.fixture
def room(machine: Machine) -> None:
    """Skip where this machine cannot give a command a network of its own."""
    if machine.why_no_room:
        pytest.skip(machine.why_no_room)


@pytest.fixture
def group(machine: Machine) -> None:
    """Skip where this user may not make control groups."""
    if machine.why_no_group:
        pytest.skip(machine.why_no_group)
