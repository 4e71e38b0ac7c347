"""In which order jobs are tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from admission.core.cycle.order import Order, order
from admission.core.request import Locality, Placement
from admission.core.snapshot import Pending, ProjectShare, Running, Tuning
from tests.builders.queue_world import NOW, make_request

TUNING = Tuning()


def _order(*pending: Pending, running: tuple[Running, ...] = (), **values: Any) -> Order:
    given = {"projects": {}, "gpus": 64, "now": NOW, "tuning": TUNING, **values}
    return order(pending, running, **given)


def _keys(found: Order) -> list[str]:
    return [each.request.key for each in found.pending]


def _pending(key: str, **values: Any) -> Pending:
    return Pending(make_request(key, **values))


def _running(key: str, **values: Any) -> Running:
    request = make_request(key, **values)
    placement = Placement(
        gpus=(), nodes=(), peak_w=(), power_cap_w=None, slowdown=0.0, locality=Locality.NODE,
        sites=(), racks=(), switch_domains=(), storage="",
    )  # fmt: skip
    return Running(request, placement, NOW, NOW + request.walltime_s)


def test_an_empty_queue_has_an_order() -> None:
    assert len(_order()) == 0


def test_higher_priority_goes_first() -> None:
    found = _order(_pending("a", priority=1), _pending("b", priority=5))
    assert _keys(found) == ["b", "a"]


def test_of_equals_the_older_goes_first_and_then_the_name_decides() -> None:
    found = _order(
        _pending("c", submitted_at=NOW - 10.0), _pending("b"), _pending("a"),
    )  # fmt: skip
    assert _keys(found) == ["c", "a", "b"]


def test_a_project_that_had_less_goes_first() -> None:
    shares = {"a": ProjectShare("a", used_gpu_s=1e6), "b": ProjectShare("b")}
    found = _order(_pending("x", project="a"), _pending("y", project="b"), projects=shares)
    assert _keys(found) == ["y", "x"]


def test_a_project_of_more_weight_may_have_more() -> None:
    shares = {
        "a": ProjectShare("a", weight=9.0, used_gpu_s=1e6),
        "b": ProjectShare("b", weight=1.0, used_gpu_s=1e6),
    }
    found = _order(_pending("x", project="a"), _pending("y", project="b"), projects=shares)
    assert _keys(found) == ["x", "y"]


def test_projects_take_turns_though_one_was_first_with_all_of_its_jobs() -> None:
    jobs = [_pending(f"a{n}", project="a", submitted_at=NOW - 1.0) for n in range(8)]
    jobs += [_pending(f"b{n}", project="b") for n in range(8)]
    first = _keys(_order(*jobs))[:8]
    assert sum(key.startswith("b") for key in first) >= 3


def test_a_project_without_weight_comes_last() -> None:
    shares = {"a": ProjectShare("a", weight=0.0), "b": ProjectShare("b")}
    found = _order(_pending("x", project="a"), _pending("y", project="b"), projects=shares)
    assert _keys(found) == ["y", "x"]
    assert np.isfinite(found.points).all()


def test_a_deadline_that_comes_near_counts() -> None:
    soon = _pending("soon", deadline_at=NOW + 600.0)
    late = _pending("late", deadline_at=NOW + 1e6)
    none = _pending("none")
    assert _keys(_order(late, none, soon))[0] == "soon"


def test_a_deadline_that_has_passed_counts_nothing() -> None:
    found = _order(_pending("passed", deadline_at=NOW - 1.0), _pending("none"))
    assert found.deadline.tolist() == [0.0, 0.0]


def test_a_project_that_has_only_held_jobs_moves_nobody() -> None:
    shares = {"h": ProjectShare("h", weight=50.0, used_gpu_s=1e9)}
    jobs = [_pending("x", project="a", priority=3), _pending("y", project="b")]
    held = replace(_pending("held", project="h"), held_by="eve")
    alone, beside = _order(*jobs, projects=shares), _order(*jobs, held, projects=shares)
    of_others = [each.request.project != "h" for each in beside.pending]
    assert beside.points[of_others].tolist() == alone.points.tolist()


def test_what_waits_passes_any_priority_in_the_end() -> None:
    old = _pending("old", priority=0, submitted_at=NOW - 1001 * TUNING.wait_s_per_point)
    new = _pending("new", priority=900)
    assert _keys(_order(new, old)) == ["old", "new"]


def test_points_add_up_to_what_the_sentence_says() -> None:
    found = _order(_pending("a", priority=7, submitted_at=NOW - 1200.0))
    text = found.sentence(0)
    assert text.startswith("1 of 1 by points: 29.0 = 7 of priority + 2.0 for waiting + 20.0")


def test_jobs_that_are_held_do_not_count_against_their_project() -> None:
    held = [
        replace(_pending(f"h{n}", project="a", submitted_at=NOW - 5.0), held_by="operator")
        for n in range(50)
    ]
    jobs = [*held, _pending("a", project="a"), _pending("b", project="b", submitted_at=NOW + 1)]
    found = _order(*jobs)
    at = _keys(found).index("a")
    assert found.share[at] == TUNING.fair_share_points


jobs = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(-5, 30),
        st.floats(0, 1e5),
        st.integers(1, 64),
    ),
    min_size=1,
    max_size=12,
)


@given(jobs, st.data())
def test_starting_one_leaves_the_others_in_their_order(some: Any, data: st.DataObject) -> None:
    shares = {name: ProjectShare(name, weight=w) for name, w in zip("abc", (1, 2, 5), strict=True)}
    queue = [
        _pending(f"j{n}", project=project, priority=priority, submitted_at=NOW - age, gpus=gpus)
        for n, (project, priority, age, gpus) in enumerate(some)
    ]
    before = _keys(_order(*queue, projects=shares))
    first = data.draw(st.integers(0, len(before) - 1))
    # Whoever starts is the first of its project that can: those before it stay.
    project = {each.request.key: each.request.project for each in queue}
    key = next(k for k in before if project[k] == project[before[first]])
    rest = [each for each in queue if each.request.key != key]
    one = next(each.request for each in queue if each.request.key == key)
    runs = _running(key, project=one.project, gpus=one.gpus)
    after = _keys(_order(*rest, running=(runs,), projects=shares))
    assert after == [each for each in before if each != key]
