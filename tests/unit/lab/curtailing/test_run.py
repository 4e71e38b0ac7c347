"""Events on arrivals: answered beforehand, held, and compared with what was said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.curtailing.events import WARM_S, Event
from lab.curtailing.run import Curtailed, Met, play_random
from tests.unit.lab.curtailing.test_events import write_trace


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Curtailed:
    """Two events on a fleet that is five sixths full: one that jobs can give, one that none can."""
    trace = write_trace(tmp_path_factory.mktemp("trace"), [36.1] * 10 + [200.0])
    asked = [
        Event(WARM_S, WARM_S + 60.0, WARM_S + 180.0, 0.15),
        Event(WARM_S + 240.0, WARM_S + 300.0, WARM_S + 360.0, 0.6),
    ]
    return play_random(trace, "all-together", seed=1, hours=0.1, events=asked)


def test_what_jobs_can_give_is_held_at_the_price_that_was_said(played: Curtailed) -> None:
    within, _ = played.met
    assert within.said is not None
    assert within.said.is_possible
    assert within.said.sure >= 0.9
    assert within.kept.verdict == "held"
    assert not within.touched
    assert within.lost_gpu_h > 0.1
    assert within.is_as_said


def test_what_jobs_cannot_give_is_said_beforehand_with_who_is_touched(played: Curtailed) -> None:
    _, beyond = played.met
    assert beyond.said is not None
    assert not beyond.said.is_possible
    assert beyond.said.sure < 0.1
    assert beyond.said.in_short()["beyond"] > 0
    assert beyond.touched
    assert played.touched_in_reach == set()


def test_what_came_true_is_counted(played: Curtailed) -> None:
    within, beyond = played.met
    dear = replace(within, lost_gpu_h=10.0 * within.lost_gpu_h)
    found = replace(played, met=[within, dear, beyond])
    assert (found.answered, found.as_said) == (3, 1 + beyond.is_as_said)
    assert (found.said_sure, found.kept_of_sure, found.kept, len(found.in_reach)) == (2, 2, 2, 2)
    missed: Met = replace(within, kept=replace(within.kept, held_s=0.0))
    assert replace(found, met=[missed]).kept_of_sure == 0
    hurt = replace(within, touched=("j1",))
    assert (replace(found, met=[hurt]).kept, hurt.is_kept) == (0, False)
    assert replace(found, met=[hurt, beyond]).touched_in_reach == {"j1"}
    data = found.as_data()
    assert data["each"][0]["said"]["lost_low_gpu_h"] <= data["each"][0]["lost_gpu_h"]


def test_where_no_controller_can_be_asked_nothing_is_said(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [36.1] * 2 + [200.0])
    asked = [Event(WARM_S, WARM_S + 60.0, WARM_S + 80.0, 0.1)]
    found = play_random(trace, "single-queue", seed=1, hours=0.05, events=asked)
    assert [each.said for each in found.met] == [None]
    assert found.answered == found.as_said == found.said_sure == 0
