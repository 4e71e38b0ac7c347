from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from lab.matrix.reading import read
from lab.matrix.scenario import Runner, Scenario
from lab.scenarios import UnknownScenario, by_name, standard
from lab.scenarios.catalog import FOLDER, QUICK
from lab.scenarios.faults import Faults, cannot_do
from lab.scenarios.loads import LoadError, arrivals_of
from lab.scenarios.measures import MEASURES, SERIES
from lab.scenarios.play import fleet_of

PAGE = (Path(__file__).resolve().parents[4] / "docs/reference/scenarios.md").read_text()


def table(heading: str) -> list[str]:
    section = PAGE.split(f"\n### {heading}\n")[1].partition("\n#")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def names_in(scenario: Scenario) -> set[str]:
    """Return the series and measures that its expectations look at."""
    found = set()
    for each in scenario.expect:
        what = each.never or each.within or each.recovers
        found.add(what.series if what else each.at_most.measure if each.at_most else "")
    return found


def test_the_page_names_what_a_run_tells() -> None:
    assert table("Series") == list(SERIES)
    assert table("Measures") == list(MEASURES)
    assert all(f"`{scenario.name}`" in PAGE for scenario in standard())


@pytest.mark.parametrize("scenario", standard(), ids=lambda each: each.name)
def test_a_standard_scenario_can_be_played_and_judged(scenario: Scenario) -> None:
    assert Runner.TWIN in scenario.runs_on
    assert cannot_do(scenario) == ""
    assert scenario.about
    assert scenario.expect
    assert names_in(scenario) <= set(SERIES) | set(MEASURES)
    Faults(scenario, fleet_of(scenario.fleet), seed=1)


def test_standard_scenarios_share_what_they_are_compared_with() -> None:
    assert len({(each.fleet, each.load, each.warm_up, each.duration) for each in standard()}) == 1


def test_every_file_is_listed_and_the_quick_ones_are_standard() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {each.name for each in standard()}
    assert [by_name(name).name for name in QUICK] == list(QUICK)


def test_a_name_that_is_wrong_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownScenario, match="do you mean feed-loss"):
        by_name("feed-los")


# --- Loads -------------------------------------------------------------------------------------


def scenario_of(load: str) -> Scenario:
    text = f"name: a\ntitle: t\nduration: 1h\nfleet: {{gpus: 64, sites: 1}}\nload: {{{load}}}\n"
    return read(text.encode())


def test_a_load_asks_for_what_it_says() -> None:
    given = scenario_of("demand: 1.5, gpus: [8, 16], runs: 10m, spread: 0.5, at_once: 0.25")
    jobs = arrivals_of(given, fleet_of(given.fleet), seed=3)
    asked = sum(job.request.gpus * job.runs_s for job in jobs) / (64 * 3600)
    assert 1.5 <= asked < 1.5 + 16 * 3600 / (64 * 3600)
    assert {job.request.gpus for job in jobs} == {8, 16}
    assert sum(job.at_s == 0.0 for job in jobs) == round(0.25 * len(jobs))
    assert float(np.median([job.runs_s for job in jobs])) == pytest.approx(600.0, rel=0.25)
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)


def test_the_same_seed_draws_the_same_jobs() -> None:
    given = scenario_of("runs: 10m")
    fleet = fleet_of(given.fleet)
    first, again, other = (arrivals_of(given, fleet, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize(("share", "expected"), [(0, {False}), (1, {True})])
def test_shares_of_jobs_are_all_or_none_at_the_ends(share: int, expected: set[bool]) -> None:
    given = scenario_of(f"runs: 10m, elastic: {share}, pausable: {share}, cross_site: {share}")
    jobs = arrivals_of(given, fleet_of(given.fleet), seed=1)
    assert {job.moves for job in jobs} == expected
    assert {job.throttling.shrink_below is not None for job in jobs} == expected
    assert {job.throttling.pause_below is not None for job in jobs} == expected


def test_a_job_that_fits_on_no_site_is_refused() -> None:
    given = scenario_of("gpus: [128]")
    with pytest.raises(LoadError, match="a job of 128 GPUs fits on no site, the largest has 64"):
        arrivals_of(given, fleet_of(given.fleet), seed=1)
