"""Commands that play: matrix, scenario and replay."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lab.__main__ import main
from lab.commands import matrix, replay, scenario, shared
from lab.matrix import report
from lab.matrix.result import MatrixResult, SubjectKind, Verdict, make_result
from tests.builders.matrix import make_cell, make_matrix


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def make(verdict: Verdict) -> MatrixResult:
    over = 0.1 if verdict == Verdict.FAILED else 0.0
    odd = verdict if verdict in (Verdict.NOT_RUN, Verdict.ERROR) else None
    cells = [make_cell("feed-loss", over=over, verdict=odd)]
    return make_result(subject="v1", kind=SubjectKind.POLICY, at="2026-11-20T20:50Z", cells=cells)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have the matrix be played by nobody. ``asked["result"]`` is what comes of it."""
    found: dict[str, Any] = {"result": make(Verdict.PASSED)}

    def play(scenarios: Any, **more: Any) -> MatrixResult:
        found.update(more, names=[each.name for each in scenarios])
        more["progress"](1, 2, "feed-loss, seed 1")
        result: MatrixResult = found["result"]
        return result

    monkeypatch.setattr(matrix, "run_matrix", play)
    monkeypatch.setattr(scenario, "run_matrix", play)
    return found


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Verdict.PASSED, 0), (Verdict.FAILED, 1), (Verdict.ERROR, 1), (Verdict.NOT_RUN, 3)],
)
def test_the_exit_status_is_that_of_the_verdict(
    asked: dict[str, Any], tmp_path: Path, verdict: Verdict, status: int
) -> None:
    asked["result"] = make(verdict)
    for command in (("matrix", "run"), ("scenario", "run", "feed-loss")):
        done = run(*command, "--out", tmp_path)
        assert done.exit_code == status, done.output
        assert f"Report: {tmp_path / 'report.html'}" in done.output
    assert report.read(tmp_path) == asked["result"]


def test_the_matrix_is_all_standard_scenarios_unless_some_are_named(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    run("matrix", "run", "--fresh", "--out", tmp_path)
    assert len(asked["names"]) == 17
    assert tuple(asked["seeds"]) == (1, 2)
    run("matrix", "run", "--fresh", "--quick", "--out", tmp_path)
    assert len(asked["names"]) == 4
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ntitle: Mine\nduration: 60s\n")
    run("matrix", "run", "--scenario", "normal", "--scenario", file, "--seed", "7", "--repeat", "1",
        "--workers", "1", "--kept", tmp_path / "kept", "--out", tmp_path)  # fmt: skip
    assert asked["names"] == ["normal", "mine"]
    assert (tuple(asked["seeds"]), asked["repeats"], asked["where"].workers) == ((7,), 1, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("matrix", "run", "--scenario", "fed-loss"), "do you mean feed-loss?"),
        (("scenario", "run", "nothing.yaml"), "nothing.yaml"),
        (("matrix", "run", "--policy", "nowhere"), "nowhere"),
        (("scenario", "run", "normal", "--server", "http://x", "--policy", "."), "goes with the"),
        (("replay", "jobs", "."), "give either --twin or --server"),
        (("replay", "jobs", ".", "--twin", "--server", "http://x"), "give either --twin or"),
        (("replay", "power", ".",), "give either --twin or --server"),
    ],
)  # fmt: skip
def test_wrong_use_is_said_in_a_line(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.exit_code in (1, 2)
    assert said in done.output
    assert "Traceback" not in done.output


def test_reports_are_made_again_from_the_result(tmp_path: Path) -> None:
    report.write(make_matrix(), tmp_path / "a")
    (tmp_path / "a" / "report.html").unlink()
    done = run("matrix", "report", tmp_path / "a")
    assert done.exit_code == 0
    assert "builtin fails 2 of 16 cells. Grade C" in done.output
    assert (tmp_path / "a" / "report.html").exists()
    run("matrix", "report", tmp_path / "a" / "result.json", "--out", tmp_path / "b")
    assert (tmp_path / "b" / "junit.xml").exists()


def test_comparisons_fail_when_something_is_worse_and_one_wants_that(tmp_path: Path) -> None:
    report.write(make_matrix(), tmp_path / "bad")
    report.write(make_matrix(over=0.0), tmp_path / "good")
    better = run("matrix", "compare", tmp_path / "bad", tmp_path / "good", "--fail-on-worse",
                 "--out", tmp_path / "c")  # fmt: skip
    assert better.exit_code == 0
    assert "2 cells better" in better.output
    assert f"Report: {tmp_path / 'c' / 'comparison.html'}" in better.output
    worse = run("matrix", "compare", tmp_path / "good", tmp_path / "bad", "--fail-on-worse")
    assert worse.exit_code == 1
    assert run("matrix", "compare", tmp_path / "good", tmp_path / "bad").exit_code == 0


def test_scenarios_are_listed() -> None:
    done = run("scenario", "list")
    assert done.exit_code == 0
    assert len(done.output.splitlines()) == 17
    assert "feed-loss" in done.output


def test_the_demo_loads_nothing_of_policies_and_admission() -> None:
    # It goes on for months beside the server.
    done = CliRunner().invoke(main, ["demo", "--help"])
    assert done.exit_code == 0
    code = (
        "import sys; from lab.__main__ import main\n"
        "print([each for each in sys.modules if each.startswith(('admission', 'policies'))])"
    )

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


SWF = "\n".join(f"{i} {60 * i} 5 120 8 -1 -1 8 300 -1 1 1 1 1 1 1 -1 -1" for i in range(1, 5))


def test_a_part_of_a_trace_is_played(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    file.write_text(f"; a log\n{SWF}\n5 600 5 120 64 -1 -1 64 300 -1 1 1 1 1 1 1 -1 -1\n")
    trace = replay._read(file, None)
    assert len(replay._part(trace, 0.0, None, None)) == 5
    part = replay._part(trace, 0.0, None, 8)
    assert len(part) == 4
    assert part.left_out["of more than 8 GPUs"] == 1
    assert len(replay._part(trace, 0.0, 0.02, None)) == 2
    done = run("replay", "jobs", file, "--twin", "--from-h", "9")
    assert "no job of the trace is in this part of it" in done.output


def test_a_trace_whose_name_does_not_tell_its_format_is_asked_about(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text(SWF)
    done = run("replay", "jobs", file, "--twin")
    assert done.exit_code == 2
    assert "give --format" in done.output


def test_lines_are_printed_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with shared.progress(10.0, out) as show:
        for at in range(11):
            show(float(at), f"step {at}")
    lines = out.getvalue().splitlines()
    # The first and the last one; those between come every few seconds.
    assert lines == ["  0%  step 0", "100%  step 10"]


def test_a_bar_is_drawn_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    with shared.progress(4.0, out) as show:
        for at in (0.0, 1.0, 4.0, 5.0):
            show(at, f"step {at:g}")
    assert "100%" in out.getvalue()
    assert "step 5" in out.getvalue()
