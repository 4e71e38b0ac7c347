"""Tests that want published data say so at the end, and excerpts are there in every clone."""

from __future__ import annotations

import re

import pytest

from tests import data_sets
from tests.data_sets import EXCERPTS, REPOSITORY, data_set, missing_lines


def test_a_run_says_what_was_left_out_for_want_of_which_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADROOM_TEST_DATA", "/nowhere")
    reasons = ["needs PyTorch"]
    for name in ("philly-jobs", "gpu-power-fast", "philly-jobs"):
        with pytest.raises(pytest.skip.Exception) as skipped:
            data_set(name)
        reasons.append(str(skipped.value))
    first, *names = missing_lines(reasons)
    assert first == "3 tests were left out for want of published data:"
    assert names[:2] == ["  gpu-power-fast: 1", "  philly-jobs: 2"]
    assert (REPOSITORY / names[-1].strip()).is_file()


def test_a_run_that_missed_nothing_says_nothing() -> None:
    assert missing_lines(["needs PyTorch"]) == []


def test_an_excerpt_that_is_all_of_its_set_needs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_TEST_DATA", "/nowhere")
    assert data_set("zeus-power-limits") == EXCERPTS / "zeus-power-limits"


def test_every_set_that_tests_ask_for_has_its_source_and_license() -> None:
    page = (EXCERPTS / "README.md").read_text()
    known = set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE))
    tests = REPOSITORY / "tests"
    code = "".join(
        path.read_text() for path in tests.rglob("*.py") if path.name != "test_data_sets.py"
    )
    asked = set(re.findall(r'data_set\("([\w-]+)"\)', code))
    assert asked
    assert asked <= known
    assert {path.name for path in EXCERPTS.iterdir() if path.is_dir()} <= known
    assert (EXCERPTS / "../../../LICENSE").resolve() == data_sets.REPOSITORY / "LICENSE"
