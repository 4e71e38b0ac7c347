"""Which GPUs are lemons: found where planted, not where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from telemetry.lemons.evidence import Finding, Memory, discoveries, weigh
from telemetry.lemons.find import AMONG, Scores, Window, find
from telemetry.lemons.rules import END_BELOW, LEAST_WINDOWS, WINDOW_S, Metric
from tests.unit.telemetry.lemons.make import Fleet

LEMON, OTHER_LEMON = 1234, 4321


def watch(fleet: Fleet, windows: int) -> dict[tuple[int, Metric], Finding]:
    """Return what was ever found in so many windows, by row of the GPU and metric."""
    memory = {metric: Memory() for metric in Metric}
    open_: dict[tuple[int, Metric], Finding] = {}
    ever: dict[tuple[int, Metric], Finding] = {}
    for number in range(windows):
        start = float(number * WINDOW_S)
        for metric, scores in find(fleet.window()).items():
            memory[metric].take(scores)
            known = [*open_.values()]
            for each in weigh(known, metric, scores, memory[metric], start, start + WINDOW_S):
                open_[each.key] = each
                ever[each.gpu_id - 1, metric] = each
                if each.ended_at is not None:
                    del open_[each.key]
    return ever


# --- Fleets ---------------------------------------------------------------------------------------


def test_a_healthy_fleet_has_no_lemon() -> None:
    assert watch(Fleet(10_000, seed=1), windows=4 * 12) == {}


@pytest.mark.slow
def test_a_healthy_fleet_has_no_lemon_over_a_day() -> None:
    assert watch(Fleet(10_000, seed=1), windows=24 * 12) == {}


@pytest.mark.slow
def test_healthy_fleets_have_hardly_any_lemon() -> None:
    # 40 fleets of 10,000 over six hours each: of every 1,000 findings one may be chance.
    found = [watch(Fleet(10_000, seed=seed), windows=72) for seed in range(10, 50)]
    assert sum(bool(each) for each in found) <= 3


def test_lemons_are_found_and_nothing_else() -> None:
    fleet = Fleet(10_000, seed=2)
    fleet.hotter[LEMON] = 1.6
    fleet.slower[OTHER_LEMON] = 0.92
    found = watch(fleet, windows=36)
    assert {gpu for gpu, _ in found} == {LEMON, OTHER_LEMON}
    assert (LEMON, Metric.HOT_CORE) in found
    assert (OTHER_LEMON, Metric.SLOW_CLOCK) in found


def test_a_lemon_is_found_within_a_quarter_of_an_hour_at_work() -> None:
    fleet = Fleet(2_000, seed=3)
    fleet.hotter[LEMON] = 1.8
    found = watch(fleet, windows=LEAST_WINDOWS)
    assert found[LEMON, Metric.HOT_CORE].seen_at == LEAST_WINDOWS * WINDOW_S


def test_a_fleet_full_of_lemons_shows_them() -> None:
    # Medians hold as long as most are healthy.
    fleet = Fleet(2_000, seed=4)
    lemons = np.random.default_rng(4).choice(2_000, 100, replace=False)
    fleet.slower[lemons] = 0.9
    found = {gpu for gpu, metric in watch(fleet, windows=12) if metric is Metric.SLOW_CLOCK}
    assert len(found & set(lemons.tolist())) >= 80
    assert found <= set(lemons.tolist())


# --- Who is compared with whom --------------------------------------------------------------------


def make_window(count: int = 64, **given: object) -> Window:
    """One rack of ``count`` GPUs, all alike."""
    number = np.arange(count)
    alike: dict[str, object] = {
        "gpu_id": number + 1, "model": np.zeros(count, int), "index": number % 8,
        "node": number // 8, "rack": np.zeros(count, int), "zone": np.zeros(count, int),
        "site": np.zeros(count, int), "job": np.zeros(count, int), "rated_w": 700.0,
        "readings": np.full(count, 30), "power_w": 500.0, "power_limit_w": 700.0, "temp_c": 60.0,
        "temp_mem_c": 70.0, "sm_mhz": 1800.0, "util": 98.0,
    }  # fmt: skip
    columns = {
        name: np.full(count, value) if isinstance(value, float) else np.array(value)
        for name, value in {**alike, **given}.items()
    }
    return Window(**columns)


def one_off(value: float, usual: float, at: int = 5, count: int = 64) -> np.ndarray:
    values = np.full(count, usual)
    values[at] = value
    return values


def of(scores: Scores, gpu_id: int) -> tuple[float, float, int, str]:
    """Return own value, peers' median, number of peers and who they are."""
    (row,) = np.flatnonzero(scores.gpu_id == gpu_id)
    return (
        float(scores.own[row]),
        float(scores.peers_median[row]),
        int(scores.peers[row]),
        AMONG[scores.among[row]],
    )


def test_a_finding_says_own_value_peers_and_how_many() -> None:
    scores = find(make_window(temp_c=one_off(75.0, 60.0)))[Metric.HOT_CORE]
    assert of(scores, 6) == (75.0, 60.0, 63, "rack")
    assert scores.matters.nonzero()[0].tolist() == [5]


def test_a_colder_or_faster_gpu_is_no_lemon() -> None:
    found = find(make_window(temp_c=one_off(40.0, 60.0), sm_mhz=one_off(1980.0, 1800.0)))
    assert not any(scores.matters.any() for scores in found.values())


def test_a_difference_that_is_too_small_to_matter_is_left() -> None:
    scores = find(make_window(temp_c=one_off(64.0, 60.0), sm_mhz=one_off(1760.0, 1800.0)))
    assert not scores[Metric.HOT_CORE].matters.any()
    assert not scores[Metric.SLOW_CLOCK].matters.any()


def test_more_power_explains_more_heat() -> None:
    rng = np.random.default_rng(1)
    power_w = rng.uniform(530.0, 690.0, 64)
    scores = find(make_window(power_w=power_w, temp_c=30.0 + 0.06 * power_w))[Metric.HOT_CORE]
    assert np.abs(scores.score).max() < 1.0


def test_the_place_on_the_node_explains_heat_too() -> None:
    rear = np.where(np.arange(256) % 8 >= 4, 6.0, 0.0)
    scores = find(make_window(256, temp_c=60.0 + rear))[Metric.HOT_CORE]
    assert np.abs(scores.score).max() < 1.0


def test_load_bands_are_not_mixed() -> None:
    busy = np.arange(64) < 32
    window = make_window(power_w=np.where(busy, 600.0, 200.0), temp_c=np.where(busy, 70.0, 45.0))
    scores = find(window)[Metric.HOT_CORE]
    assert of(scores, 1)[2:] == (31, "rack")
    assert np.abs(scores.score).max() < 1.0


def test_idle_gpus_are_not_compared() -> None:
    idle = np.arange(64) < 20
    window = make_window(util=np.where(idle, 0.0, 98.0), power_w=np.where(idle, 70.0, 500.0))
    assert find(window)[Metric.HOT_CORE].gpu_id.tolist() == list(range(21, 65))


def test_small_racks_are_compared_with_each_other_within_their_zone() -> None:
    rack = np.repeat([0, 1, 2], [52, 6, 6])
    scores = find(make_window(rack=rack))[Metric.HOT_CORE]
    assert of(scores, 1)[2:] == (51, "rack")
    assert of(scores, 60)[2:] == (11, "zone")


def test_without_enough_peers_nobody_is_compared() -> None:
    assert not len(find(make_window(7))[Metric.HOT_CORE].gpu_id)
    assert not len(find(make_window(0))[Metric.HOT_CORE].gpu_id)


def test_clocks_of_two_jobs_are_not_mixed() -> None:
    job = np.arange(64) // 32
    scores = find(make_window(job=job, sm_mhz=np.where(job == 0, 1900.0, 1400.0)))
    assert np.abs(scores[Metric.SLOW_CLOCK].score).max() < 1.0


def test_clocks_under_two_power_limits_are_not_mixed() -> None:
    capped = np.arange(64) < 32
    window = make_window(
        power_limit_w=np.where(capped, 500.0, 700.0), sm_mhz=np.where(capped, 1400.0, 1900.0)
    )
    assert np.abs(find(window)[Metric.SLOW_CLOCK].score).max() < 1.0


def test_without_a_job_clocks_are_compared_on_the_node() -> None:
    window = make_window(job=np.full(64, -1), sm_mhz=np.repeat([1900.0, 1400.0], 32))
    scores = find(window)[Metric.SLOW_CLOCK]
    assert of(scores, 1)[2:] == (7, "node")
    assert np.abs(scores.score).max() < 1.0


def test_a_missing_value_leaves_the_others() -> None:
    window = make_window(temp_mem_c=np.full(64, np.nan), util=np.full(64, np.nan))
    found = find(window)
    assert not len(found[Metric.HOT_MEMORY].gpu_id)
    assert len(found[Metric.HOT_CORE].gpu_id) == 64


# --- From windows to findings ---------------------------------------------------------------------


def scores_of(values: list[float]) -> Scores:
    count = len(values)
    return Scores(
        gpu_id=np.arange(1, count + 1),
        own=np.full(count, 70.0),
        peers_median=np.full(count, 60.0),
        peers=np.full(count, 63),
        among=np.zeros(count, int),
        score=np.array(values),
        matters=np.array(values) > 1.0,
    )


def weigh_one(
    memory: Memory, open_: list[Finding], values: list[float], number: int
) -> list[Finding]:
    scores = scores_of(values)
    memory.take(scores)
    start = float(number * WINDOW_S)
    return weigh(open_, Metric.HOT_CORE, scores, memory, start, start + WINDOW_S)


def test_one_window_that_stands_out_is_no_finding() -> None:
    memory = Memory()
    for number, score in enumerate([9.0, 0.0, 0.0, 0.5]):
        assert weigh_one(memory, [], [score, 0.1, -0.1], number) == []


def test_a_finding_ends_when_its_mean_score_has_fallen() -> None:
    memory = Memory()
    open_: list[Finding] = []
    for number in range(12):
        open_ = weigh_one(memory, open_, [9.0, 0.1, -0.1], number)
    assert open_[0].ended_at is None
    ends = []
    for number in range(12, 40):
        (finding,) = weigh_one(memory, open_, [0.0, 0.1, -0.1], number)
        if finding.ended_at is not None:
            ends.append(number)
            break
    assert memory.score[1] < END_BELOW
    assert ends == [23]  # after an hour of good windows
    # What was seen of it last stays in the record.
    assert (finding.own, finding.seen_at) == (70.0, 12 * WINDOW_S)


def test_a_gpu_that_idles_keeps_its_finding() -> None:
    memory = Memory()
    open_: list[Finding] = []
    for number in range(6):
        open_ = weigh_one(memory, open_, [9.0, 0.1, -0.1], number)
    scores = replace(scores_of([0.1, -0.1]), gpu_id=np.array([2, 3]))
    memory.take(scores)
    assert weigh(open_, Metric.HOT_CORE, scores, memory, 1800.0, 2100.0) == []
    assert memory.windows[1] == 6


def test_discoveries_need_more_where_more_are_compared() -> None:
    few, many = np.zeros(100), np.zeros(100_000)
    few[0] = many[0] = 5.0
    assert discoveries(few)[0]
    assert not discoveries(many)[0]
    many[0] = 6.0
    assert discoveries(many)[0]
    # Where there are many, the bar is lower for each.
    many[:1000] = 5.0
    assert discoveries(many)[:1000].all()


def test_nothing_is_discovered_among_nobody() -> None:
    assert not len(discoveries(np.zeros(0)))
