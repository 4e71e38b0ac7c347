"""Throughput is judged by what faults leave, and not at all where the machine varies too much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.matrix import pace
from lab.matrix.channel import Line
from lab.matrix.injecting import Normal
from lab.matrix.judging import SHORTFALL, cell_of
from lab.matrix.playing import FaultSeen, Life, Run
from lab.matrix.reading import read
from lab.matrix.result import Cell, Check, Verdict
from lab.matrix.scenario import Fault, FaultKind, Level, Target
from tests.builders.runs import make_run

HALF = Fault(kind=FaultKind.CPU_QUOTA, at="20s", lasts="40s", share=0.5)
SCENARIO = read(
    b"name: a\ntitle: a\nruns_on: [command]\nduration: 100s\n"
    b"expect: [at_most: {measure: throughput_shortfall, value: 0.2},"
    b" at_most: {measure: failed_exits, value: 0}]"
)


def slowed(factor: float, fault: Fault = HALF, *, usual_s: float = 1.0) -> Run:
    """Return a run of 100 steps that are slower between the 20th and the 60th."""
    times = [usual_s * (factor if 20 < number <= 60 else 1.0) for number in range(1, 101)]
    seen = FaultSeen(fault, from_s=19.0 * usual_s, to_s=(19.5 + 40 * factor) * usual_s)
    return make_run(times, faults=[seen])


def judged(*runs: Run, unfaulted: Sequence[Run]) -> Cell:
    return cell_of(SCENARIO, runs, unfaulted[0], again="", unfaulted=unfaulted)


def of_pace(cell: Cell) -> Check:
    return cell.checks[0]


QUIET = [make_run([1.0] * 100), make_run([1.01] * 100)]


def test_what_loses_just_the_share_of_the_fault_passes() -> None:
    cell = judged(slowed(2.0), unfaulted=QUIET)
    assert of_pace(cell).verdict == Verdict.PASSED
    assert pace.shortfall(slowed(2.0), QUIET[0]) == pytest.approx(0.0)


def test_what_loses_more_than_the_share_of_the_fault_is_caught() -> None:
    # Half of the CPU time makes 40 of 100 steps take 80 s, and these took 160.
    cell = judged(slowed(4.0), unfaulted=QUIET)
    assert cell.verdict == Verdict.FAILED
    assert cell.why.startswith("throughput_shortfall is at most 0.2: 0.35")
    assert "2 min 40 s" not in cell.cause
    assert "1 min 59 s more making steps" in cell.cause


def test_what_is_missing_is_a_share_of_what_the_faults_leave() -> None:
    missing = pace.shortfall(slowed(4.0), QUIET[0])
    assert missing == pytest.approx(1 - (99 + 40) / (99 + 120))


def test_a_noisy_machine_says_so_and_judges_the_rest() -> None:
    noisy = [make_run([1.0] * 100), make_run([1.4] * 100)]
    cell = judged(slowed(4.0), unfaulted=noisy)
    assert of_pace(cell).verdict == Verdict.NOT_MEASURED
    assert of_pace(cell).said == "too noisy to judge: steps vary by 33.3 %, bar 20 %"
    assert cell.checks[1].verdict == Verdict.PASSED
    assert cell.verdict == Verdict.NOT_MEASURED


def test_on_a_noisy_machine_what_is_wrong_otherwise_fails() -> None:
    noisy = [make_run([1.0] * 100), make_run([1.4] * 100)]
    cell = judged(make_run([1.0] * 100, exits=[1]), unfaulted=noisy)
    assert cell.verdict == Verdict.FAILED
    assert cell.why.startswith("failed_exits")


def test_one_run_without_faults_does_not_tell_how_much_a_machine_varies() -> None:
    found = of_pace(judged(slowed(4.0), unfaulted=QUIET[:1]))
    assert found.verdict == Verdict.NOT_MEASURED
    assert found.said == "nothing tells how much this machine varies"


def test_the_best_run_counts_as_whatever_else_a_machine_does_slows() -> None:
    assert of_pace(judged(slowed(4.0), slowed(2.1), unfaulted=QUIET)).verdict == Verdict.PASSED


def test_a_single_hiccup_is_no_noise_and_a_slow_half_is() -> None:
    hiccup = [1.0] * 50 + [4.0] + [1.0] * 49
    assert (pace.noise_of([make_run([1.0] * 100), make_run(hiccup)]) or 0) < 0.05
    half = [1.0] * 50 + [1.5] * 50
    assert (pace.noise_of([make_run([1.0] * 100), make_run(half)]) or 0) > 0.2


@given(
    times=st.lists(st.floats(0.01, 5), min_size=20, max_size=60),
    factor=st.floats(1, 3),
)
def test_noise_is_by_how_much_runs_differ_and_not_how_uneven_their_steps_are(
    times: list[float], factor: float
) -> None:
    one, other = make_run(times), make_run([factor * each for each in times])
    expected = (factor - 1) / ((factor + 1) / 2)
    assert pace.noise_of([one, other]) == pytest.approx(expected)
    assert pace.noise_of([one, one]) == 0


@given(factor=st.floats(1, 10), share=st.floats(0.1, 1))
def test_slower_steps_never_pass_for_faster_ones(factor: float, share: float) -> None:
    fault = Fault(kind=FaultKind.CPU_QUOTA, at="20s", lasts="40s", share=share)
    less, more = (pace.shortfall(slowed(f, fault), QUIET[0]) for f in (factor, factor + 0.1))
    assert less is not None
    assert more is not None
    assert more > less
    assert (less > 1e-9) == (factor > 1 / share + 1e-9)


def killed(*, startup_s: float, after: float = 1.0) -> Run:
    """Return a run that was killed after step 60 and resumed at 50, its steps slower then."""
    before = [(number, number - 1.0, 0) for number in range(1, 61)]
    begin_s = 60.0 + startup_s
    later = [(number, begin_s + (number - 51) * after, 1) for number in range(51, 101)]
    fault = Fault(kind=FaultKind.KILL, at="60s")
    return make_run(
        steps=[*before, *later],
        faults=[FaultSeen(fault, 59.5, 59.5)],
        lives=[Life(-5.0, 59.5), Life(60.0, later[-1][1])],
    )


def test_a_restart_may_take_twice_as_long_as_a_start_and_make_steps_again() -> None:
    normal = make_run([1.0] * 100, lives=[Life(-5.0, 99.0)])
    assert pace.shortfall(killed(startup_s=10.0), normal) == pytest.approx(0.0, abs=0.02)
    late = pace.shortfall(killed(startup_s=60.0), normal)
    assert late == pytest.approx(50 / 170, abs=0.02)


def test_what_is_slower_after_it_resumed_is_caught() -> None:
    cell = judged(killed(startup_s=5.0, after=3.0), unfaulted=QUIET)
    assert of_pace(cell).verdict == Verdict.FAILED
    assert "it went on from step 50: 10 steps made again" in cell.cause


def test_what_stood_still_as_it_was_told_has_lost_nothing() -> None:
    times = [1.0] * 40 + [31.0] + [1.0] * 59
    ledger = [
        Line("pause", None, 39.0, seq=1, done_s=40.0, step=41),
        Line("resume", None, 70.0, seq=2, done_s=70.1, step=41),
    ]
    fault = FaultSeen(Fault(kind=FaultKind.PAUSE, at="40s", lasts="30s"), 39.0, 70.0)
    run = make_run(times, faults=[fault], ledger=ledger)
    assert pace.shortfall(run, QUIET[0]) == pytest.approx(0.0, abs=0.01)


LINKED = Normal(
    bits_per_s={"sync": 8e6, "storage": 8e6},
    bytes_moved={"sync": 10_000_000, "storage": 10_000_000},
    disk_bytes_per_s=1e6,
    disk_bytes_moved=10_000_000,
    is_known=True,
)
STORAGE = Target(level=Level.STORAGE)


@pytest.mark.parametrize(
    ("fault", "cost_s"),
    [
        # 40 of 99 steps moved 4.04 MB, which take 20.2 s over a fifth of 1 MB/s.
        (Fault(kind=FaultKind.LINK_BANDWIDTH, at="0s", share=0.2), 20.2),
        # Ten messages of 10 ms in each of 40 steps.
        (Fault(kind=FaultKind.LINK_LATENCY, at="0s", latency_s=0.01), 4.0),
        # 2,790 packets and 40 ends: 12 + 0.28 losses with three deviations, 0.2 s each.
        (Fault(kind=FaultKind.LINK_LOSS, at="0s", loss_share=0.01), 4.6),
        # By storage and disk, each 4.04 MB at 0.1 MB/s.
        (Fault(kind=FaultKind.STORAGE_SLOW, at="0s", share=0.1), 80.8),
        # It may stand still for as long as nothing passes: here it did not.
        (Fault(kind=FaultKind.SITE_ISOLATED, at="0s"), 0.0),
    ],
)
def test_faults_on_links_and_storage_cost_by_what_moves_there(fault: Fault, cost_s: float) -> None:
    normal = make_run([1.0] * 100, normal=LINKED)
    run = slowed(1.0, fault)
    found = pace.predicted_s(run, normal)
    assert found == pytest.approx(99 + cost_s, rel=0.01)


def test_what_nobody_can_predict_is_not_judged() -> None:
    watts = Fault(kind=FaultKind.POWER_LIMIT, at="20s", limit_w=300.0)
    assert pace.predicted_s(slowed(2.0, watts), QUIET[0]) is None
    cell = judged(slowed(2.0, watts), unfaulted=QUIET)
    assert of_pace(cell).verdict == Verdict.NOT_MEASURED
    assert "nobody can say what a fault costs" in of_pace(cell).said
    assert next(e for e in cell.measures if e.name == SHORTFALL).value is None
