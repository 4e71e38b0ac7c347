"""Worlds under each approach, small ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab.__main__ import main
from lab.approaches import APPROACHES, NAMES, approach
from lab.approaches.anchors import cut_load, tapas
from lab.approaches.command import approaches
from lab.approaches.comparison import Run, Setup, compare, policy_of, run
from lab.approaches.results import dumps, loads, page
from lab.spread import Where
from lab.traces.arrivals import Flexibility, Manner
from tests.data_sets import REPOSITORY, data_set

DOCS = REPOSITORY / "docs" / "reference" / "approaches"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace whose jobs fill 64 GPUs within the first half minute, and stay."""
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    rows = [f"2017-10-04 10:00:{at:02},3000.0,8,24000.0,vc" for at in range(0, 30, 3)]
    path.write_text("\n".join(["time,duration_s,num_gpus,gpu_seconds,vc", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def setup(trace: Path) -> Setup:
    """A rack at each of two sites. Full, they would draw about 1.2 times what they may."""
    return Setup(trace=trace, from_h=0.0, hours=0.1, gpus=64, power_share=0.5)


@pytest.fixture(scope="module")
def single(setup: Setup) -> Run:
    return run(setup, approach("single-queue"), seed=1)


@pytest.fixture(scope="module")
def together(setup: Setup) -> Run:
    return run(setup, approach("all-together"), seed=1)


def test_the_single_queue_runs_into_the_protections(single: Run) -> None:
    figures = single.figures
    assert figures.started == 8
    assert figures.over_budget_s > 0.0
    assert figures.unexpected_throttle_gpu_h > 0.0
    assert figures.rack_peak_share > 1.0


def test_all_together_stays_within_the_budgets(single: Run, together: Run) -> None:
    figures = together.figures
    assert figures.over_budget_s == 0.0
    assert figures.unexpected_throttle_gpu_h <= 0.05 * single.figures.unexpected_throttle_gpu_h
    assert 0.0 < figures.rack_peak_share <= 1.0
    assert figures.work_gpu_h > 0.0


def test_the_same_seed_gives_the_same_run(setup: Setup, single: Run) -> None:
    (again,) = compare(setup, names=["single-queue"], seeds=[1], where=Where(workers=1))
    assert again == single
    other = run(setup, approach("single-queue"), seed=2)
    assert other.figures.digest != single.figures.digest


def test_figures_agree_with_each_other(single: Run) -> None:
    figures, seen = single.figures, single.seen
    assert figures.jobs == 10
    assert figures.finished == 0
    assert figures.work_gpu_h <= 64 * figures.hours
    assert 30.0 <= figures.carbon_kg / figures.energy_kwh * 1000.0 <= 381.0
    assert figures.wait_p50_s <= figures.wait_p95_s <= figures.hours * 3600.0
    assert max(seen.shares["fullest rack"]) == pytest.approx(figures.rack_peak_share, abs=1e-4)
    assert len({len(each) for each in (seen.t_s, *seen.shares.values())}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_approach_runs(setup: Setup, name: str) -> None:
    figures = run(setup, approach(name), seed=1).figures
    assert figures.approach == name
    assert figures.work_gpu_h > 0.0


def test_only_those_that_follow_rules_have_any() -> None:
    for each in APPROACHES:
        assert bool(policy_of(each).rules) == each.follows_rules
    followed = [policy_of(each).rules for each in APPROACHES if each.follows_rules]
    assert all(rules == followed[0] for rules in followed)


def test_what_is_run_is_said_and_can_be_run_again(setup: Setup) -> None:
    assert "10 of the Philly trace" in setup.jobs_said()
    assert "the largest 8 GPUs" in setup.jobs_said()
    assert "64 H100s at 2 sites" in setup.fleet_said()
    assert setup.again((1,))[4:] == [
        "--trace", "jobs.csv", "--from-h", "0", "--hours", "0.1", "--gpus", "64",
        "--power-share", "0.5",
    ]  # fmt: skip
    assert setup.again((1, 2))[-4:] == ["--seed", "1", "--seed", "2"]


def test_an_approach_that_is_not_there_is_refused_before_anything_runs(setup: Setup) -> None:
    with pytest.raises(ValueError, match="there is none called 'fast'"):
        next(compare(setup, names=["fast"]))


# --- The command ----------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_page_and_plots(trace: Path, tmp_path: Path) -> None:
    words = f"--trace {trace} --from-h 0 --hours 0.02 --gpus 32 --only single-queue --workers 1"
    out, kept = tmp_path / "out", tmp_path / "kept"
    command = [*words.split(), "--kept", str(kept), "--out", str(out)]
    done = CliRunner().invoke(approaches, command)
    assert done.exit_code == 0, done.output
    assert "| | Single global queue |" in done.output
    assert sorted(each.name for each in out.iterdir()) == [
        "bars.svg", "figures.json", "index.md", "power.svg",
    ]  # fmt: skip
    first = (out / "figures.json").read_bytes()
    found = loads(first)
    assert page(found) == (out / "index.md").read_text()
    assert dumps(found) == first

    # Again, it takes the run that it has kept.
    (path,) = kept.iterdir()
    before = path.stat().st_ino
    assert CliRunner().invoke(approaches, command).exit_code == 0
    assert (out / "figures.json").read_bytes() == first
    assert path.stat().st_ino == before


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    done = CliRunner().invoke(approaches, ["--trace", str(tmp_path / "other.csv")])
    assert done.exit_code == 1
    assert "no column time, duration_s, num_gpus, vc" in done.output


def test_the_command_is_one_of_the_twins() -> None:
    done = CliRunner().invoke(main, ["approaches", "--help"])
    assert done.exit_code == 0
    assert "Compare ways to run a fleet under limits" in done.output


# --- The docs -------------------------------------------------------------------------------------


def test_the_docs_show_the_committed_figures() -> None:
    found = loads((DOCS / "figures.json").read_bytes())
    assert {run.approach for run in found.runs} == set(NAMES)
    assert page(found) == (DOCS / "index.md").read_text()


def test_the_docs_tell_of_the_default_jobs() -> None:
    setup = Setup(trace=data_set("philly-jobs"))
    found = loads((DOCS / "figures.json").read_bytes())
    assert (found.jobs, found.fleet) == (setup.jobs_said(), setup.fleet_said())


# --- Anchors --------------------------------------------------------------------------------------


def test_what_is_avoided_is_told_by_cause(single: Run, together: Run) -> None:
    assert "not run by heat" in tapas([single.figures]).here
    own = together.figures
    here = tapas([single.figures, own]).here
    assert "none occurred by heat" in here
    assert "100.0 % by power brakes" in here


@pytest.mark.slow
def test_a_cut_of_a_quarter_is_held() -> None:
    held = cut_load(gpus=64, warm_s=1200.0, cut_s=900.0)
    assert held.reached_s < 300.0
    assert held.held_share > 0.9
    assert held.most_share < 0.85
    assert 0.3 < held.work_share < 1.0


@pytest.mark.slow
def test_without_anybody_who_gives_way_the_queue_still_keeps_the_budgets(setup: Setup) -> None:
    rigid = replace(setup, manner=Manner(tiers=(Flexibility(1.0, 0.0),)))
    figures = run(rigid, approach("all-together"), seed=1).figures
    assert figures.over_budget_s == 0.0
    assert figures.started < 8
