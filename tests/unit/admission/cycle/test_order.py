"""In which order jobs are tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.cycle.order import Columns, Order, order
from admission.core.request import Locality, Placement
from admission.core.snapshot import Pending, ProjectShare, Running, Tuning
from tests.builders.queue_world import NOW, make_request

TUNING = Tuning()


def _order(*pending: Pending, running: tuple[Running, ...] = (), **values: Any) -> Order:
    given = {"projects": {}, "now": NOW, "tuning": TUNING, **values}
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
    assert np.isfinite(found.urgency).all()


def test_a_deadline_that_comes_near_counts() -> None:
    soon = _pending("soon", deadline_at=NOW + 600.0)
    late = _pending("late", deadline_at=NOW + 1e6)
    none = _pending("none")
    assert _keys(_order(late, none, soon))[0] == "soon"


def test_a_deadline_that_has_passed_counts_nothing() -> None:
    found = _order(_pending("passed", deadline_at=NOW - 1.0), _pending("none"))
    assert _keys(found) == ["none", "passed"]
    assert found.urgency.tolist() == [0.0, 0.0]


def test_a_deadline_counts_until_it_has_passed_and_then_it_is_told_that_it_does_not() -> None:
    """It is one to begin by: a job keeps it that begins now, however long it runs."""
    last = _pending("y", deadline_at=NOW, walltime_s=1e5)
    found = _order(last, _pending("x", deadline_at=NOW - 1.0))
    assert _keys(found) == ["y", "x"]
    assert "has passed" not in found.sentence(0)
    assert found.sentence(1) == (
        "2 of 2: priority 0; its deadline, 1970-01-12 13:46 UTC, has passed and counts nothing any"
        " more; waited 0 min"
    )


def test_a_project_that_has_only_held_jobs_moves_nobody() -> None:
    shares = {"h": ProjectShare("h", weight=50.0, used_gpu_s=1e9)}
    jobs = [_pending("x", project="a", priority=3), _pending("y", project="b")]
    held = replace(_pending("held", project="h"), held_by="eve")
    alone, beside = _order(*jobs, projects=shares), _order(*jobs, held, projects=shares)
    assert [key for key in _keys(beside) if key != "held"] == _keys(alone)
    places = [_keys(beside).index(key) for key in _keys(alone)]
    assert beside.urgency[places].tolist() == alone.urgency.tolist()
    told = [beside.accounts.told(int(beside.leaf[place])) for place in places]
    assert told == [alone.accounts.told(int(leaf)) for leaf in alone.leaf]


def test_what_waits_passes_any_priority_in_the_end() -> None:
    old = _pending("old", priority=0, submitted_at=NOW - 1001 * TUNING.wait_s_per_point)
    new = _pending("new", priority=900)
    assert _keys(_order(new, old)) == ["old", "new"]


def test_the_sentence_says_what_decided_in_numbers() -> None:
    shares = {
        "a": ProjectShare("a", weight=1.0, used_gpu_s=75_000.0),
        "b": ProjectShare("b", weight=3.0, used_gpu_s=25_000.0),
    }
    first = _pending("x", project="a", submitted_at=NOW - 1200.0, priority=7)
    found = _order(first, _pending("y", project="b", priority=9), projects=shares)
    assert found.sentence(1) == (
        "2 of 2: priority 7; its project a has had 75 % and is due 25 %; waited 20 min"
    )
    # Against those that have had less, waiting makes up for nothing.
    shares["b"] = ProjectShare("b", weight=3.0, used_gpu_s=225_000.0)
    found = _order(first, _pending("y", project="b", priority=9), projects=shares)
    assert found.sentence(0) == (
        "1 of 2: priority 7, 2.0 more for waiting or a deadline; its project a has had 25 % and is"
        " due 25 %; waited 20 min"
    )


# --- Shares, and what waiting makes up for --------------------------------------------------------


def test_a_backlog_however_old_is_not_ahead_of_one_that_has_had_nothing() -> None:
    shares = {"hog": ProjectShare("hog", used_gpu_s=1e7)}
    jobs = [
        _pending(f"h{n}", project="hog", submitted_at=NOW - 36 * 3600.0 + n) for n in range(100)
    ]
    assert _keys(_order(*jobs, _pending("new", project="new"), projects=shares))[0] == "new"


@pytest.mark.parametrize(("waited_s", "first"), [(5_990.0, "urgent"), (6_010.0, "patient")])
def test_waiting_makes_up_for_priority_against_one_that_has_had_more(
    waited_s: float, first: str
) -> None:
    shares = {"hog": ProjectShare("hog", used_gpu_s=1e7)}
    patient = _pending("patient", project="vision", submitted_at=NOW - waited_s)
    found = _order(_pending("urgent", project="hog", priority=10), patient, projects=shares)
    assert _keys(found)[0] == first


@pytest.mark.parametrize(("waited_s", "first"), [(5_990.0, False), (6_010.0, True)])
def test_a_backlog_of_more_priority_is_passed_in_the_time_of_its_priority_however_old_it_is(
    waited_s: float, first: bool
) -> None:
    shares = {"hog": ProjectShare("hog", used_gpu_s=1e7)}
    old = [
        _pending(f"h{n}", project="hog", priority=10, submitted_at=NOW - 36 * 3600.0)
        for n in range(20)
    ]
    new = _pending("new", project="new", submitted_at=NOW - waited_s)
    assert (_keys(_order(*old, new, projects=shares))[0] == "new") is first


def test_waiting_makes_up_for_no_priority_of_one_that_has_had_less() -> None:
    shares = {"hog": ProjectShare("hog", used_gpu_s=1e7)}
    patient = _pending("patient", project="hog", submitted_at=NOW - 1e6)
    found = _order(_pending("urgent", project="vision", priority=10), patient, projects=shares)
    assert _keys(found) == ["urgent", "patient"]


def test_who_has_had_less_rises_with_those_that_wait_for_longer() -> None:
    shares = {
        "hog": ProjectShare("hog", used_gpu_s=1e7),
        "backlog": ProjectShare("backlog", used_gpu_s=1e5),
    }
    old = [_pending(f"old{n}", project="backlog", submitted_at=NOW - 1e5) for n in range(9)]
    found = _order(
        *old, _pending("new", project="new"), _pending("urgent", project="hog", priority=40),
        projects=shares,
    )  # fmt: skip
    assert _keys(found)[0] == "new"
    assert _keys(found)[-1] == "urgent"


def test_a_deadline_passes_nobody_who_has_had_less() -> None:
    shares = {"hog": ProjectShare("hog", used_gpu_s=1e7)}
    soon = _pending("soon", project="hog", deadline_at=NOW + 60.0)
    assert _keys(_order(soon, _pending("new", project="new"), projects=shares)) == ["new", "soon"]


def test_organizations_are_compared_before_their_projects() -> None:
    shares = {
        "big": ProjectShare("big", organization="research", used_gpu_s=1e6),
        "shop": ProjectShare("shop", organization="products", used_gpu_s=1e3),
        "new": ProjectShare("new", organization="research"),
    }
    found = _order(_pending("n", project="new"), _pending("s", project="shop"), projects=shares)
    # A new project gets nothing for its organization beyond that one's share.
    assert _keys(found) == ["s", "n"]
    heavier = {
        name: replace(each, organization_weight=1e4 if each.organization == "research" else 1.0)
        for name, each in shares.items()
    }
    found = _order(_pending("n", project="new"), _pending("s", project="shop"), projects=heavier)
    assert _keys(found) == ["n", "s"]


def test_a_project_beside_organizations_has_a_share_like_theirs() -> None:
    shares = {
        "lone": ProjectShare("lone", weight=2.0, used_gpu_s=1e5),
        "big": ProjectShare("big", organization="lone", used_gpu_s=9e4),
    }
    found = _order(_pending("l", project="lone"), _pending("b", project="big"), projects=shares)
    assert _keys(found) == ["l", "b"]
    assert found.sentence(0) == (
        "1 of 2: priority 0; its project lone has had 53 % and is due 67 %; waited 0 min"
    )


def test_in_a_project_users_take_turns_by_what_they_have_had() -> None:
    ada = [Pending(make_request(f"a{n}", submitted_at=NOW - 9.0), user="ada") for n in range(20)]
    bob = [Pending(make_request(f"b{n}"), user="bob") for n in range(20)]
    first = _keys(_order(*ada, *bob))[:10]
    assert sum(key.startswith("a") for key in first) == 5
    share = ProjectShare("vision", user_weights={"bob": 4.0})
    first = _keys(_order(*ada, *bob, projects={"vision": share}))[:10]
    assert sum(key.startswith("b") for key in first) == 8
    share = ProjectShare("vision", used_by_user={"ada": 1e9})
    assert all(
        key.startswith("b") for key in _keys(_order(*ada, *bob, projects={"vision": share}))[:20]
    )


def test_what_runs_counts_for_the_user_that_it_runs_for() -> None:
    running = replace(_running("r", gpus=8), user="ada", started_at=NOW - 60.0)
    found = _order(
        Pending(make_request("a", submitted_at=NOW - 60.0), user="ada"),
        Pending(make_request("b"), user="bob"),
        running=(running,),
    )
    assert _keys(found) == ["b", "a"]


claims = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.floats(0, 1e5),
        st.sampled_from([0.0, 1e3, 1e6]),
        st.sampled_from([1.0, 3.0]),
    ),
    min_size=2,
    max_size=12,
)


@given(claims)
def test_nobody_is_passed_by_one_of_no_more_priority_that_has_had_more(some: Any) -> None:
    shares, jobs = {}, []
    for n, (priority, age, used, weight) in enumerate(some):
        shares[f"p{n}"] = ProjectShare(f"p{n}", weight=weight, used_gpu_s=used)
        jobs.append(_pending(f"j{n}", project=f"p{n}", priority=priority, submitted_at=NOW - age))
    keys = _keys(_order(*jobs, projects=shares))
    for one, (priority, _, used, weight) in enumerate(some):
        for other, (its_priority, _, its_used, its_weight) in enumerate(some):
            if priority >= its_priority and used / weight < its_used / its_weight:
                assert keys.index(f"j{one}") < keys.index(f"j{other}")


def test_jobs_that_are_held_do_not_count_against_their_project() -> None:
    held = [
        replace(_pending(f"h{n}", project="a", submitted_at=NOW - 5.0), held_by="operator")
        for n in range(50)
    ]
    jobs = [*held, _pending("a", project="a"), _pending("b", project="b", submitted_at=NOW + 1)]
    assert [key for key in _keys(_order(*jobs)) if not key.startswith("h")] == ["a", "b"]


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
    runs = replace(_running(key), request=one)
    after = _keys(_order(*rest, running=(runs,), projects=shares))
    assert after == [each for each in before if each != key]


# --- One job more ---------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 3), st.integers(1, 8)),
        min_size=1, max_size=12, unique_by=lambda job: job[0],
    ),
    st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 3), st.integers(1, 8)),
)  # fmt: skip
def test_one_job_more_stands_where_it_would_if_all_were_put_in_order_anew(
    jobs: list[tuple[int, int, int, int]], more: tuple[int, int, int, int]
) -> None:
    pending = [_of_numbers(*job) for job in jobs]
    running = (_running("runs", project="p0", gpus=4),)
    projects = {"p1": ProjectShare("p1", weight=3.0, used_gpu_s=1e5)}
    one = _of_numbers(*more)
    columns = _order(*pending, running=running, projects=projects).columns
    found = order(columns.with_last(one, NOW), running, projects, now=NOW, tuning=TUNING)
    others = [each for each in pending if each.request.key != one.request.key]
    anew = _order(*others, one, running=running, projects=projects)
    assert _keys(found) == _keys(anew)
    assert [found.sentence(at) for at in range(len(found))] == [
        anew.sentence(at) for at in range(len(anew))
    ]


def _of_numbers(name: int, project: int, priority: int, gpus: int) -> Pending:
    request = make_request(f"j{name}", project=f"p{project}", priority=priority, gpus=gpus)
    return Pending(request, user=f"u{name % 2}", held_by="ada" if gpus == 8 else "")


def test_chosen_rows_are_in_the_order_in_which_they_are_named() -> None:
    columns = Columns.of([_pending("a", gpus=1), _pending("b", gpus=2), _pending("c", gpus=3)], NOW)
    found = columns.chosen(np.array([2, 0]))
    assert [each.request.key for each in found.pending] == ["c", "a"]
    assert found.gpus.tolist() == [3.0, 1.0]
