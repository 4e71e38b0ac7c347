"""Events under the condition of an objective."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.slos.document import Objective
from admission.slos.facts import Samples
from admission.slos.judging import SPEAKS_FOR_S, Event, Judgment, judge
from tests.unit.admission.slos.builders import EVERY_S, make_event, make_objective, make_samples

HOUR_S = 3_600.0
#: An hour with power.
PLENTY = make_samples({"oslo": [0.5] * 60})
#: Power for the first five minutes, none for ten, then again.
GAP = make_samples({"oslo": [0.5] * 5 + [0.1] * 10 + [0.5] * 45})


def verdict(judgments: list[Judgment]) -> tuple[bool, float, float] | None:
    """Return whether the one event was good, when that was clear, and what its clock showed."""
    if not judgments:
        return None
    (one,) = judgments
    return one.is_good, one.at, one.clock_s


def test_what_begins_in_time_is_good() -> None:
    event = make_event(over_at=540.0)
    assert verdict(judge(make_objective(), [event], PLENTY, HOUR_S)) == (True, 540.0, 540.0)


def test_what_begins_late_is_bad_from_the_moment_that_it_is_late() -> None:
    event = make_event(over_at=700.0)
    assert verdict(judge(make_objective(), [event], PLENTY, HOUR_S)) == (False, 600.0, 600.0)


def test_what_still_waits_is_bad_once_it_has_waited_for_too_long() -> None:
    objective, event = make_objective(), make_event()
    assert verdict(judge(objective, [event], PLENTY, 599.0)) is None
    assert verdict(judge(objective, [event], PLENTY, 601.0)) == (False, 600.0, 600.0)


def test_the_clock_stands_while_the_condition_does_not_hold() -> None:
    # Five minutes with power before the gap of ten, and four after it.
    event = make_event(over_at=19 * 60.0)
    assert verdict(judge(make_objective(), [event], GAP, HOUR_S)) == (True, 1140.0, 540.0)
    late = make_event(over_at=21 * 60.0)
    assert verdict(judge(make_objective(), [late], GAP, HOUR_S)) == (False, 1200.0, 600.0)


def test_what_was_never_under_the_condition_is_left_out() -> None:
    event = make_event(begun_at=6 * 60.0, over_at=14 * 60.0)
    assert judge(make_objective(), [event], GAP, HOUR_S) == []


def test_what_begins_at_once_counts_where_the_condition_held() -> None:
    objective = make_objective()
    at_once = make_event(begun_at=60.0, over_at=60.0)
    assert verdict(judge(objective, [at_once], PLENTY, HOUR_S)) == (True, 60.0, 0.0)
    in_the_gap = make_event(begun_at=600.0, over_at=600.0)
    assert judge(objective, [in_the_gap], GAP, HOUR_S) == []


def test_without_a_condition_all_time_counts_and_no_samples_are_needed() -> None:
    objective = make_objective(when="")
    event = make_event(over_at=601.0)
    assert verdict(judge(objective, [event], Samples.none(), HOUR_S)) == (False, 600.0, 600.0)


def test_what_is_not_known_does_not_count() -> None:
    unknown = make_samples({"oslo": [math.nan] * 60})
    assert judge(make_objective(), [make_event()], unknown, HOUR_S) == []
    assert judge(make_objective(), [make_event()], Samples.none(), HOUR_S) == []


def test_a_sample_speaks_for_a_while_and_no_longer() -> None:
    one = make_samples({"oslo": [0.5]})
    objective = make_objective(within="2m")
    assert verdict(judge(objective, [make_event()], one, HOUR_S)) == (False, 120.0, 120.0)
    patient = make_objective(within=f"{SPEAKS_FOR_S + 1:g}s")
    assert judge(patient, [make_event()], one, HOUR_S) == []


def test_time_on_hold_does_not_count() -> None:
    held = make_event(held=((60.0, 660.0),), over_at=1_150.0)
    assert verdict(judge(make_objective(), [held], PLENTY, HOUR_S)) == (True, 1_150.0, 550.0)
    longer = make_event(held=((60.0, 660.0),))
    assert verdict(judge(make_objective(), [longer], PLENTY, HOUR_S)) == (False, 1_200.0, 600.0)


def test_a_hold_that_has_not_ended_stops_the_clock() -> None:
    held = make_event(held=((60.0, math.inf),))
    assert judge(make_objective(), [held], PLENTY, HOUR_S) == []


def test_what_is_cancelled_in_time_is_left_out() -> None:
    objective = make_objective()
    assert judge(objective, [make_event(dropped_at=500.0)], PLENTY, HOUR_S) == []
    assert verdict(judge(objective, [make_event(dropped_at=700.0)], PLENTY, HOUR_S)) is not None


def test_any_of_the_sites_that_it_may_go_to_will_do() -> None:
    samples = make_samples({"oslo": [0.1] * 60, "bergen": [0.5] * 60})
    objective = make_objective()
    assert judge(objective, [make_event(sites=("oslo",))], samples, HOUR_S) == []
    for sites in ((), ("bergen",), ("oslo", "bergen")):
        event = make_event(sites=sites)
        assert verdict(judge(objective, [event], samples, HOUR_S)) is not None


def test_where_it_is_to_hold_at_all_sites_one_without_is_too_few() -> None:
    samples = make_samples({"oslo": [0.1] * 60, "bergen": [0.5] * 60})
    both = make_event(sites=("oslo", "bergen"), at_all_sites=True)
    assert judge(make_objective(), [both], samples, HOUR_S) == []
    unknown = make_event(sites=("bergen", "hamar"), at_all_sites=True)
    assert judge(make_objective(), [unknown], samples, HOUR_S) == []


def test_only_selected_events_are_judged() -> None:
    objective = make_objective(select="{classes: [dense], projects: [speech]}")
    events = [
        make_event("a/train", project="speech"),
        make_event("b/train"),
        make_event("c/train", project="speech", job_class="light"),
    ]
    (found,) = judge(objective, events, PLENTY, HOUR_S)
    assert found.event.key == "a/train"


def test_each_resume_has_its_own_checkpoint_interval() -> None:
    objective = make_objective(measure="resume", within="checkpoint_interval")
    events = [
        make_event("a/train", checkpoint_interval_s=900.0, over_at=800.0),
        make_event("b/train", checkpoint_interval_s=600.0, over_at=800.0),
        make_event("c/train", over_at=800.0),
    ]
    found = {each.event.job: each.is_good for each in judge(objective, events, PLENTY, HOUR_S)}
    assert found == {"a": True, "b": False}


# --- Losses --------------------------------------------------------------------------------------


def loss(lost_s: float, *, at: float = 60.0, **fields: Any) -> Event:
    """Return what would be lost at a moment, of somebody who saves each ten minutes."""
    given = {"checkpoint_interval_s": 600.0, **fields}
    return make_event(f"job/train@{at:g}", begun_at=at, over_at=at, lost_s=lost_s, **given)


def losses(**fields: Any) -> Objective:
    return make_objective(measure="cross_site_loss", **{"within": "checkpoint_interval", **fields})


def test_a_loss_within_an_interval_and_the_time_of_sending_is_good() -> None:
    events = [loss(629.0, sent_in_s=30.0, at=60.0), loss(631.0, sent_in_s=30.0, at=120.0)]
    good, bad = judge(losses(), events, PLENTY, HOUR_S)
    assert (good.is_good, good.at, good.clock_s, good.limit_s) == (True, 60.0, 629.0, 630.0)
    assert (bad.is_good, bad.at, bad.clock_s, bad.limit_s) == (False, 120.0, 631.0, 630.0)


def test_sending_for_longer_than_an_interval_is_no_excuse() -> None:
    slow, never = loss(1_201.0, sent_in_s=9_000.0), loss(1_199.0, sent_in_s=math.inf)
    found = judge(losses(), [slow, never], PLENTY, HOUR_S)
    assert [(each.is_good, each.limit_s) for each in found] == [(False, 1_200.0), (True, 1_200.0)]


def test_of_a_length_of_time_sending_is_a_part() -> None:
    (found,) = judge(losses(within="10m"), [loss(601.0, sent_in_s=30.0)], PLENTY, HOUR_S)
    assert (found.is_good, found.limit_s) == (False, 600.0)


def test_a_loss_at_a_moment_without_the_condition_is_left_out() -> None:
    at = (299.0, 301.0, 899.0, 900.0)
    found = judge(losses(), [loss(9e9, at=each) for each in at], GAP, HOUR_S)
    assert [each.at for each in found] == [299.0, 900.0]
    assert judge(losses(), [loss(9e9)], Samples.none(), HOUR_S) == []
    assert len(judge(losses(when=""), [loss(9e9)], Samples.none(), HOUR_S)) == 1


def test_of_whom_states_no_interval_none_was_promised() -> None:
    event = loss(1.0, checkpoint_interval_s=None)
    assert judge(losses(), [event], PLENTY, HOUR_S) == []
    assert len(judge(losses(within="10m"), [event], PLENTY, HOUR_S)) == 1


@given(
    lost_s=st.floats(0, 1e5),
    sent_in_s=st.floats(0, 1e5) | st.just(math.inf),
    interval_s=st.floats(1, 1e4),
)
def test_no_loss_of_two_intervals_is_good_and_none_of_one_is_bad(
    lost_s: float, sent_in_s: float, interval_s: float
) -> None:
    event = loss(lost_s, sent_in_s=sent_in_s, checkpoint_interval_s=interval_s)
    (found,) = judge(losses(), [event], PLENTY, HOUR_S)
    assert interval_s <= found.limit_s <= 2 * interval_s
    assert found.is_good == (lost_s <= found.limit_s)


@given(
    holds=st.lists(st.booleans(), min_size=1, max_size=30),
    begun=st.integers(0, 1_500),
    waits=st.integers(0, 1_500),
    within=st.integers(1, 900),
)
def test_clocks_agree_with_counting_second_by_second(
    holds: list[bool], begun: int, waits: int, within: int
) -> None:
    samples = make_samples({"oslo": [0.5 if held else 0.1 for held in holds]})
    event = make_event(begun_at=float(begun), over_at=float(begun + waits))
    judgments = judge(make_objective(within=f"{within}s"), [event], samples, 1e6)

    def holds_at(second: int) -> bool:
        row = min(int(second // EVERY_S), len(holds) - 1)
        return holds[row] and second - row * EVERY_S < SPEAKS_FOR_S

    seconds = [second for second in range(begun, begun + waits) if holds_at(second)]
    if not seconds and not holds_at(begun):
        assert judgments == []
        return
    (found,) = judgments
    assert found.is_good == (len(seconds) <= within)
    if found.is_good:
        assert found.clock_s == pytest.approx(len(seconds))
    else:
        assert found.at == pytest.approx(seconds[within - 1] + 1)


def test_many_events_are_judged_in_one_go() -> None:
    count = 24_000
    events = [make_event(f"j{i}/train", over_at=float(i % 1200)) for i in range(count)]
    found = judge(make_objective(), events, PLENTY, HOUR_S)
    assert len(found) == count
    assert sum(each.is_good for each in found) == 20 * 601
