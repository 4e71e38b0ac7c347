"""``python -m lab calibrate``: the table, the JSON and the exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.calibration.catalog import CALIBRATIONS, Calibration
from lab.calibration.result import Comparison, Role, by_share
from lab.commands import calibrate as command


def made(twin: float) -> Iterator[Comparison]:
    yield by_share(
        "swings", "mean", "W", real=100.0, twin=twin, bar=2.0, naive=110.0, role=Role.REPEAT
    )


def run(*options: str) -> Result:
    return CliRunner().invoke(
        command.calibrate, [*options, "--only", "swings", "--workers", "1", "--fresh"]
    )


def test_what_is_within_its_bar_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALIBRATIONS, "swings", Calibration(lambda _: made(101.0)))
    result = run()
    assert result.exit_code == 0
    assert "repeat" in result.output
    assert "1 quantities, 0 of 1 over their bars, 0 of 1 no better" in result.output


def test_what_is_over_its_bar_fails_and_is_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(CALIBRATIONS, "swings", Calibration(lambda _: made(103.0)))
    path = tmp_path / "errors.json"
    result = run("--json", str(path))
    assert result.exit_code == command.OVER
    assert "OVER ITS BAR" in result.output
    (comparison,) = json.loads(path.read_text())["comparisons"]
    assert comparison["error"] == pytest.approx(3.0)
    assert not comparison["holds"]


def test_json_to_standard_output_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALIBRATIONS, "swings", Calibration(lambda _: made(101.0)))
    assert json.loads(run("--json", "-").stdout)["comparisons"][0]["twin"] == 101.0


def test_a_missing_data_set_is_named_with_the_way_out(tmp_path: Path) -> None:
    result = run("--data", str(tmp_path))
    assert result.exit_code == command.NOTHING
    assert "swings: not compared" in result.stderr
    assert "--data" in result.stderr
