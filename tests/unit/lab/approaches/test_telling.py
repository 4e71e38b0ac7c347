"""Table, claims and plots of a comparison."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from lab.approaches import APPROACHES, claims, judging, plots, table
from lab.approaches.figures import Figures, Seen
from lab.approaches.judging import Judged

SVG = "{http://www.w3.org/2000/svg}"


def made(approach: str, **values: Any) -> Figures:
    given: dict[str, Any] = {
        "approach": approach, "seed": 1, "gpus": 64, "hours": 2.0, "jobs": 10, "started": 9,
        "finished": 8, "work_gpu_h": 100.0, "wait_p50_s": 60.0, "wait_p95_s": 600.0,
        "cap_throttle_gpu_h": 0.0, "unexpected_throttle_gpu_h": 40.0, "thermal_gpu_h": 1.0,
        "brake_gpu_h": 39.0, "over_budget_s": 120.0, "over_by_kind_s": {"rack": 120.0},
        "energy_kwh": 50.0, "carbon_kg": 5.0, "lost_gpu_h": 0.0, "restarts": 0, "pauses": 0,
        "site_peak_share": 1.02, "rack_peak_share": 1.2, "sync_delay_s": 0.1, "digest": "d",
        **values,
    }  # fmt: skip
    return Figures(**given)


def runs() -> list[Figures]:
    """A run of each approach: the single queue breaks budgets, none of the others does."""
    good = {"over_budget_s": 0.0, "unexpected_throttle_gpu_h": 1.0}
    return [made(each.name, **({} if each.name == "single-queue" else good)) for each in APPROACHES]


# --- The table ------------------------------------------------------------------------------------


def test_the_table_has_a_column_for_each_approach_in_their_order() -> None:
    head, _, first, *_ = table.as_markdown(list(reversed(runs()))).splitlines()
    assert head == "| | " + " | ".join(each.title for each in APPROACHES) + " |"
    assert first == "| work done, GPU h |" + " 100 |" * 7


def test_the_table_shows_mean_and_spread_of_several_seeds() -> None:
    text = table.as_markdown([made("single-queue", work_gpu_h=each) for each in (90.0, 100.0, 110)])
    assert "| work done, GPU h | 100 (90 to 110) |" in text
    assert "| work per kWh, GPU h | 2.000 (1.800 to 2.200) |" in text
    assert "| jobs finished | 8 |" in text


def test_work_per_energy_of_a_run_without_any_is_none() -> None:
    assert made("single-queue", energy_kwh=0.0).work_per_kwh == 0.0


# --- Claims ---------------------------------------------------------------------------------------


def verdict_of(text: str, start: str) -> str:
    (line,) = [each for each in text.splitlines() if each.startswith(start)]
    return line.split("|")[-2].strip()


@pytest.mark.parametrize(
    ("over_budget_s", "verdict"), [(0.0, "yes"), (120.0, "no difference here"), (130.0, "**no**")]
)
def test_a_claim_is_judged_by_its_measure(over_budget_s: float, verdict: str) -> None:
    two = [made("single-queue"), made("elastic-batch", over_budget_s=over_budget_s)]
    assert verdict_of(claims.as_markdown(two), "| Elastic batch scaling | power") == verdict


@pytest.mark.parametrize(("left_gpu_h", "verdict"), [(1.9, "yes"), (2.1, "**no**")])
def test_to_keep_clear_of_throttling_is_to_have_a_twentieth_of_it(
    left_gpu_h: float, verdict: str
) -> None:
    two = [made("single-queue"), made("power-capped", unexpected_throttle_gpu_h=left_gpu_h)]
    assert verdict_of(claims.as_markdown(two), "| Power-capped autoscaling | power") == verdict


def test_claims_go_by_means_over_seeds() -> None:
    two = [made("single-queue"), *(made("site-aware", over_budget_s=s) for s in (0.0, 260.0))]
    text = claims.as_markdown(two)
    assert verdict_of(text, "| Site-aware placement | power") == "**no**"
    assert "time over some budget: 130 s, single global queue 120 s" in text


def test_what_was_not_tried_is_said_not_to_be() -> None:
    text = claims.as_markdown(runs())
    assert verdict_of(text, "| Cross-site checkpoint and resume | network") == "not tried here"
    assert len(text.splitlines()) == 2 + len(claims.CLAIMS)


def test_there_are_three_claims_for_each_of_the_five() -> None:
    of = [claim.approach for claim in claims.CLAIMS]
    assert {name: of.count(name) for name in set(of)} == {each.name: 3 for each in APPROACHES[:5]}


# --- Plots ----------------------------------------------------------------------------------------


def drawn(text: str) -> ET.Element:
    return ET.fromstring(text)


def seen(**sites: list[float]) -> Seen:
    t_s = [60.0 * place for place in range(len(next(iter(sites.values()))))]
    return Seen(t_s=t_s, shares=sites, unexpected_gpus=[], running_gpus=[])


def test_the_plot_of_power_has_a_panel_for_each_approach_and_a_line_for_each_site() -> None:
    two = {"single-queue": seen(a=[0.5, 1.2], b=[0.1, 0.2]), "all-together": seen(a=[0.5], b=[0.6])}
    root = drawn(plots.power(two, hours=1.0))
    titles = [each.text for each in root.iter(f"{SVG}text") if each.get("class") == "title"]
    assert titles == ["Single global queue", "All together"]
    assert len(list(root.iter(f"{SVG}polyline"))) == 4
    assert root.find(f"{SVG}title") is not None


def test_a_short_excess_is_still_seen_in_a_long_plot() -> None:
    shares = [0.5] * 20_000
    shares[12_345] = 1.5
    root = drawn(plots.power({"single-queue": seen(a=shares)}, hours=20_000 / 60))
    (line,) = root.iter(f"{SVG}polyline")
    points = [each.split(",") for each in (line.get("points") or "").split()]
    assert len(points) < 1500
    heights = [float(y) for _, y in points]
    assert min(heights) < min(heights[:5]) - 20


def test_the_bars_are_as_long_as_their_values() -> None:
    root = drawn(plots.bars([made("single-queue", work_gpu_h=50.0), made("all-together")]))
    widths = [float(each.get("width") or 0) for each in root.iter(f"{SVG}rect")][:2]
    assert widths[0] == pytest.approx(widths[1] / 2, rel=0.01)
    assert [each.text for each in root.iter(f"{SVG}text")][:2] == [
        "Work done, GPU h",
        "Single global queue",
    ]


# --- Windows --------------------------------------------------------------------------------------


def test_windows_are_judged_beside_the_plain_queue_on_the_same_seed() -> None:
    judged = [
        Judged(window="w", fleet="as it is", figures=made(judging.PLAIN, work_gpu_h=50.0)),
        Judged(window="w", fleet="as it is", figures=made(judging.BUILT_IN, work_gpu_h=49.0)),
        Judged(
            window="w",
            fleet="plenty",
            figures=made(judging.BUILT_IN, work_gpu_h=60.0, others_work_gpu_h=20.0),
        ),
        Judged(window="w", fleet="more", figures=made(judging.BUILT_IN, work_gpu_h=100.0)),
    ]
    said = judging.as_table(judged)

    assert "| w | 1 | 50.0 | 49.0 | 0.980 |" in said
    assert "0.980 at least, 0.980 on average" in said
    assert "| w | 1 | 1.250 | 120 |" in said
