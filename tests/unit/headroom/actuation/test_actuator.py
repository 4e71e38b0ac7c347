from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.agent.actuation.journal import JournalError
from headroom.agent.actuation.knobs import KnobError
from headroom.agent.devices import GpuLostError
from headroom.contracts import Limit, LimitKind
from tests.unit.headroom.actuation.builders import Bench, FakeGpu, FakeKnob, make_limit, told


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# --- Setting --------------------------------------------------------------------------------------


def test_a_limit_is_set_and_read_back_and_told(bench: Bench) -> None:
    bench.say(make_limit(value=400))
    (report,) = bench.step()
    assert bench.power.value == 400
    assert (report.state, report.asked, report.original, report.applied) == (
        "applied",
        400,
        650,
        400,
    )
    assert (report.node, report.gpu, report.kind, report.at) == ("n1", 0, "power_cap_w", 0.0)


def test_what_does_not_change_is_told_once(bench: Bench) -> None:
    bench.say(make_limit())
    assert len(bench.step()) == 1
    for _ in range(5):
        bench.clock.now += 1
        assert bench.step() == []


def test_the_power_before_and_after_is_measured(bench: Bench) -> None:
    bench.gpus[0].watts = 640.0
    bench.say(make_limit())
    (first,) = bench.step()
    assert (first.watts_before, first.watts_after) == (640, None)
    bench.gpus[0].watts = 398.0
    bench.clock.now += 9
    assert bench.step() == []
    bench.clock.now += 1
    (second,) = bench.step()
    assert (second.watts_before, second.watts_after) == (640, 398)
    assert second.at == first.at  # since when it is in force


def test_power_that_cannot_be_measured_is_null(bench: Bench) -> None:
    bench.gpus[0].watts = None
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.watts_before, report.watts_after) == (None, None)
    bench.clock.now += 20
    assert bench.step() == []


@pytest.mark.parametrize(("asked", "applied"), [(50, 200), (200, 200), (1e6, 650)])
def test_what_is_asked_beyond_the_cards_bounds_is_set_at_them(
    bench: Bench, asked: float, applied: float
) -> None:
    bench.say(make_limit(value=asked))
    (report,) = bench.step()
    assert (report.asked, report.applied, bench.power.value) == (asked, applied, applied)


def test_a_limit_never_raises_what_is_in_force(bench: Bench) -> None:
    bench.power.value = 300
    bench.say(make_limit(value=400))
    (report,) = bench.step()
    assert (report.state, report.applied, report.original) == ("applied", 300, 300)
    assert bench.power.value == 300
    assert bench.journal.entries == {}


def test_of_several_limits_the_strictest_counts_and_all_are_told(bench: Bench) -> None:
    bench.say(make_limit("a", 500), make_limit("b", 350), make_limit("c", 420))
    assert told(bench.step()) == [
        ("a", 0, "applied", 350),
        ("b", 0, "applied", 350),
        ("c", 0, "applied", 350),
    ]


def test_when_the_strictest_ends_the_next_one_counts(bench: Bench) -> None:
    bench.say(make_limit("a", 500), make_limit("b", 350))
    bench.step()
    bench.say(make_limit("a", 500))
    assert told(bench.step()) == [("a", 0, "applied", 500), ("b", 0, "restored", 500)]
    assert bench.power.value == 500
    bench.say()
    assert told(bench.step()) == [("a", 0, "restored", 650)]
    assert bench.power.value == 650


def test_a_looser_limit_than_the_original_lets_the_original_hold(bench: Bench) -> None:
    bench.say(make_limit("a", 400))
    bench.step()
    bench.say(make_limit("a", 680))
    (report,) = bench.step()
    assert (report.applied, bench.power.value) == (650, 650)
    assert bench.journal.entries == {}


def test_a_limit_of_one_gpu_leaves_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeGpu(0), FakeGpu(1))
    bench.say(make_limit(gpu=1))
    assert told(bench.step()) == [("l1", 1, "applied", 400)]
    assert [gpu.power.value for gpu in bench.gpus] == [650, 400]


def test_a_limit_of_the_node_is_told_of_each_gpu(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeGpu(0), FakeGpu(1))
    bench.say(make_limit())
    assert [report.gpu for report in bench.step()] == [0, 1]


def test_kinds_do_not_mix(bench: Bench) -> None:
    bench.say(make_limit("p", 400), make_limit("c", 600, kind=LimitKind.CLOCK_CAP_MHZ))
    assert told(bench.step()) == [("p", 0, "applied", 400), ("c", 0, "applied", 600)]
    bench.say(make_limit("p", 400))
    assert told(bench.step()) == [("c", 0, "restored", None)]
    assert (bench.power.value, bench.gpus[0].clock.value) == (400, None)


# --- What cannot be set ---------------------------------------------------------------------------


def test_a_refusal_is_told_changes_nothing_and_is_not_repeated_at_once(bench: Bench) -> None:
    bench.power.refuses = KnobError("setting the power limit: no permission", is_refusal=True)
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.state, report.applied) == ("refused", None)
    assert "no permission" in report.error
    assert (bench.power.value, bench.journal.entries) == (650, {})

    bench.power.refuses = None
    bench.clock.now += 5
    assert bench.step() == []
    bench.clock.now += 5
    assert told(bench.step()) == [("l1", 0, "applied", 400)]


def test_a_new_limit_is_tried_at_once_whatever_failed_before(bench: Bench) -> None:
    bench.power.refuses = KnobError("no", is_refusal=True)
    bench.say(make_limit("a"))
    bench.step()
    bench.power.refuses = None
    bench.say(make_limit("b", 300))
    assert told(bench.step()) == [("b", 0, "applied", 300)]


def test_a_driver_that_takes_a_limit_and_does_not_keep_it_is_found_out(bench: Bench) -> None:
    bench.power.sticks = True
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.state, report.applied) == ("failed", 650)
    assert "650 is in force" in report.error


def test_a_cap_that_nobody_can_read_back_is_checked_by_what_the_gpu_does(bench: Bench) -> None:
    bench.say(make_limit(value=600, kind=LimitKind.CLOCK_CAP_MHZ))
    assert told(bench.step()) == [("l1", 0, "applied", 600)]
    bench.gpus[0].clock.seen_violation = "the SM clock is 1980 MHz"
    bench.clock.now += 10
    (report,) = bench.step()
    assert (report.state, report.error) == ("failed", "the SM clock is 1980 MHz")


def test_an_unknown_kind_is_refused_and_the_others_are_kept(bench: Bench) -> None:
    bench.say(make_limit("a", kind="fan_floor"), make_limit("b"))
    assert told(bench.step()) == [("b", 0, "applied", 400), ("a", None, "refused", None)]


def test_a_gpu_that_does_not_answer_is_waited_for_before_that_is_told(bench: Bench) -> None:
    bench.say(make_limit(gpu=5))
    assert bench.step() == []
    bench.clock.now += 10
    assert told(bench.step()) == [("l1", 5, "refused", None)]
    bench.gpus.append(FakeGpu(5))
    assert told(bench.step()) == [("l1", 5, "applied", 400)]


def test_a_gpu_that_is_lost_in_between_is_left_for_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> float:
        raise GpuLostError("gpu0")

    bench.say(make_limit())
    bench.step()
    with monkeypatch.context() as patch:
        patch.setattr(bench.power, "in_force", lost)
        bench.say()
        assert bench.step() == []
    assert told(bench.step()) == [("l1", 0, "restored", 650)]


def test_nothing_is_set_that_was_not_written_down(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(entry: object) -> None:
        raise JournalError("no space left on device")

    monkeypatch.setattr(bench.journal, "put", full)
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.state, bench.power.value) == ("failed", 650)
    assert "no space left" in report.error


# --- The end of a limit ---------------------------------------------------------------------------


def test_a_lease_ends_by_itself_while_the_server_is_away(bench: Bench) -> None:
    bench.say(make_limit(expires_at=30))
    bench.step()
    bench.clock.now = 29.9
    bench.step()
    assert bench.power.value == 400
    bench.clock.now = 30.0
    (report,) = bench.step()
    assert (report.state, report.applied, bench.power.value) == ("expired", 650, 650)
    assert report.watts_before == 600
    assert bench.journal.entries == {}


def test_an_answer_that_is_too_old_lets_all_limits_go(bench: Bench) -> None:
    bench.say(make_limit(), valid_for_s=60)
    bench.step()
    bench.clock.now = 60
    assert told(bench.step()) == [("l1", 0, "expired", 650)]


def test_stopping_undoes_everything(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeGpu(0), FakeGpu(1, value=700))
    bench.say(make_limit("p"), make_limit("c", 300, kind=LimitKind.CLOCK_CAP_MHZ))
    bench.step()
    assert sorted(told(bench.stop()), key=str) == [
        ("c", 0, "restored", None),
        ("c", 1, "restored", None),
        ("p", 0, "restored", 650),
        ("p", 1, "restored", 700),
    ]
    assert [gpu.power.value for gpu in bench.gpus] == [650, 700]
    assert [gpu.clock.value for gpu in bench.gpus] == [None, None]


def test_what_cannot_be_undone_is_told_and_tried_again(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.power.refuses = KnobError("the driver is busy")
    bench.say()
    (report,) = bench.step()
    assert (report.state, report.error) == ("failed", "the driver is busy")
    bench.power.refuses = None
    bench.clock.now += 10
    assert told(bench.step()) == [("l1", 0, "restored", 650)]


def test_a_limit_that_was_refused_ends_without_a_touch(bench: Bench) -> None:
    bench.power.refuses = KnobError("no", is_refusal=True)
    bench.say(make_limit())
    bench.step()
    bench.say()
    bench.clock.now += 10
    assert [report.state for report in bench.step()] == []
    assert bench.power.value == 650


# --- Others who set limits ------------------------------------------------------------------------


def test_what_somebody_else_raises_is_held_down_and_restored_to_theirs(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.power.value = 550
    bench.step()
    assert bench.power.value == 400
    bench.say()
    bench.step()
    assert bench.power.value == 550


def test_what_somebody_else_lowers_is_left_to_them(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.power.value = 250
    (report,) = bench.step()
    assert (report.applied, report.original) == (250, 250)
    bench.say()
    bench.step()
    assert bench.power.value == 250


def test_what_we_set_once_is_somebody_elses_when_they_set_it_now(bench: Bench) -> None:
    for value in (400, 300):
        bench.say(make_limit(value=value))
        bench.step()
    bench.power.value = 400
    bench.step()
    bench.say()
    bench.step()
    assert bench.power.value == 400


def test_a_reloaded_driver_has_its_limits_set_again(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.power.value = 700  # the default
    bench.step()
    assert bench.power.value == 400


def test_what_nobody_can_read_is_set_again_after_a_reload(bench: Bench) -> None:
    bench.say(make_limit(value=600, kind=LimitKind.CLOCK_CAP_MHZ))
    bench.step()
    gpu = bench.gpus[0]
    gpu.clock = FakeKnob(None, lambda step: None)  # a new driver, and so a new knob
    gpu.clock.hidden = True
    bench.step()
    assert gpu.clock.value == 600
    changes: list[str] = []
    gpu.clock._steps = changes.append
    bench.step()
    assert changes == []


# --- Death ----------------------------------------------------------------------------------------


def test_the_next_life_undoes_what_the_last_one_set(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.start()
    assert told(bench.step()) == [("l1", 0, "restored", 650)]
    assert (bench.power.value, bench.journal.entries) == (650, {})
    bench.say(make_limit())
    assert told(bench.step()) == [("l1", 0, "applied", 400)]


def test_a_limit_that_is_still_wanted_is_held_on_with_the_first_original(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.start()
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.state, report.original, report.applied) == ("applied", 650, 400)
    bench.say()
    bench.step()
    assert bench.power.value == 650


def test_the_original_of_a_gpu_that_does_not_answer_is_kept_for_later(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    gone, bench.gpus = bench.gpus, []
    bench.start()
    bench.step()
    bench.gpus = gone
    bench.step()
    assert bench.power.value == 650


def test_indices_that_changed_do_not_confuse_gpus(tmp_path: Path) -> None:
    one, two = FakeGpu(0, value=600), FakeGpu(1, value=700)
    bench = Bench(tmp_path, one, two)
    bench.say(make_limit(gpu=0))
    bench.step()
    bench.start()
    one.index, two.index = 1, 0
    bench.step()
    assert (one.power.value, two.power.value) == (600, 700)


class KilledError(BaseException):
    """SIGKILL: nothing after it happens."""


class Killer:
    """Kills at the n-th step that changes something."""

    def __init__(self) -> None:
        self.left = -1

    def __call__(self, step: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise KilledError(step)


#: A life that sets, tightens, loosens and undoes takes 22 steps.
STEPS = 22


@pytest.mark.parametrize("kind", LimitKind)
@pytest.mark.parametrize("death", list(range(1, STEPS + 2)))
def test_whenever_it_dies_the_next_life_restores_the_original(
    tmp_path: Path, death: int, kind: LimitKind
) -> None:
    killer = Killer()
    bench = Bench(tmp_path, FakeGpu(steps=killer), steps=killer)
    killer.left = death

    def live() -> None:
        for value in (400, 300, 500):
            bench.say(make_limit(f"l{value}", value, kind=kind))
            bench.step()
        bench.say()
        bench.step()

    assert survives(live) == (death > STEPS)
    killer.left = -1
    bench.start()
    bench.step()
    assert (bench.power.value, bench.gpus[0].clock.value) == (650, None)
    assert bench.journal.entries == {}


#: Limits are set in fifties, and others set what lies between, so that one can tell them apart.
OURS = st.sampled_from([150.0, 250.0, 350.0, 450.0, 550.0, 650.0, 750.0])
THEIRS = st.sampled_from([225.0, 375.0, 525.0, 675.0])
ACTIONS = st.one_of(
    st.tuples(st.just("say"), st.lists(OURS, max_size=3)),
    st.tuples(st.just("kill at"), st.integers(1, 9)),
    st.tuples(st.just("somebody sets"), THEIRS),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 11.0])),
)


@settings(max_examples=150, deadline=None)
@given(actions=st.lists(ACTIONS, max_size=12))
def test_whatever_happens_limits_hold_and_the_original_comes_back(
    actions: list[tuple[str, object]],
) -> None:
    """``natural`` is what would be in force if there were no agent."""
    natural = 675.0
    killer = Killer()
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder), FakeGpu(value=natural, steps=killer), steps=killer)
        limits: list[Limit] = []
        for action, value in actions:
            if action == "say":
                assert isinstance(value, list)
                limits = [make_limit(f"l{i}", watts) for i, watts in enumerate(value)]
            elif action == "kill at":
                assert isinstance(value, int)
                killer.left = value
            elif action == "somebody sets":
                assert isinstance(value, float)
                bench.power.value = natural = value
            elif action == "restart":
                bench.start()
            else:
                assert isinstance(value, float)
                bench.clock.now += value
            bench.say(*limits)
            if survives(bench.step):
                strictest = min((min(max(w.value, 200), 700) for w in limits), default=700.0)
                assert bench.power.value == min(natural, strictest)
            else:
                bench.start()
        killer.left = -1
        bench.start()
        bench.step()
        assert (bench.power.value, bench.journal.entries) == (natural, {})


def survives(work: Callable[[], object]) -> bool:
    try:
        work()
    except KilledError:
        return False
    return True
