"""What one user queues keeps nobody else from being looked at, and nobody else's place."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from admission.core.cycle.decide import Decisions
from admission.core.cycle.order import Order, order, tried
from admission.core.reasons import ReasonToken
from admission.core.request import Placement
from admission.core.snapshot import Pending, ProjectShare, Tuning
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import NOW, World, make_request

CALM = Tuning(stagger_above=2.0)
#: Why nothing of it may begin now.
KEPT_BACK: list[dict[str, Any]] = [
    {"held_by": "eve"}, {"waits_for": ("prepare",)}, {"not_before": NOW + 60.0},
    {"spec_error": "its class is gone"},
]  # fmt: skip


def _world(depth: int, **values: Any) -> World:
    return World(make_arrays(racks=1, nodes=2), tuning=replace(CALM, depth=depth), **values)


def _starts(decisions: Decisions) -> dict[str, Placement]:
    return {each.request.key: each.placement for each in decisions.admitted}


others = st.lists(
    st.tuples(
        st.sampled_from(["vision", "speech", "hog"]),
        st.sampled_from(["ada", "bob"]),
        st.integers(-5, 5),
        st.floats(0, 1e4),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=30)
@example(
    some=[("speech", "bob", 0, 0.0, 8), ("vision", "ada", 0, 10.0, 8)], backlog=10_000, used=1e9
)
@given(some=others, backlog=st.integers(1, 60), used=st.floats(0, 1e9))
def test_jobs_that_cannot_begin_change_no_other_start(
    some: list[tuple[str, str, int, float, int]], backlog: int, used: float
) -> None:
    depth = 10_000 if backlog == 10_000 else 12
    projects = {"hog": ProjectShare("hog", weight=7.0, used_gpu_s=used)}
    without, beside = (_world(depth, projects=projects) for _ in range(2))
    for number, (project, user, priority, waited_s, gpus) in enumerate(some):
        request = make_request(
            f"j{number}/train", project=project, priority=priority, gpus=gpus,
            submitted_at=NOW - waited_s,
        )  # fmt: skip
        for world in (without, beside):
            world.submit(request, user=user)
    for number in range(backlog):
        request = make_request(
            f"b{number}/train", project="hog", priority=100, submitted_at=NOW - 1e5
        )
        beside.submit(request, user="eve", **KEPT_BACK[number % len(KEPT_BACK)])
    first, second = without.cycle(), beside.cycle()
    assert _starts(first) == _starts(second)
    mine = [key for key in second.waiting if key.startswith("j")]
    assert mine == list(first.waiting)
    assert [second.waiting[key].dominant for key in mine] == [
        first.waiting[key].dominant for key in mine
    ]  # fmt: skip


def test_ten_thousand_that_could_begin_keep_nobody_else_from_being_tried() -> None:
    world = _world(depth=50)
    for number in range(500):
        request = make_request(
            f"b{number}/train", project="hog", gpus=64, priority=100, submitted_at=NOW - 1e5
        )
        world.submit(request, user="eve")
    world.submit(make_request("colleague/train", project="hog", gpus=4), user="ada")
    world.submit(make_request("other/train", project="speech", gpus=4), user="bob")
    decisions = world.cycle()
    assert set(_starts(decisions)) == {"colleague/train", "other/train"}
    untried = [
        each
        for each in decisions.waiting.values()
        if each.dominant.token is ReasonToken.BEHIND_HIGHER_PRIORITY
    ]
    assert len(untried) == 500 - 50 + 2
    assert "it has used up its part" in untried[0].dominant.sentence


def _order(*jobs: tuple[str, str, int]) -> Order:
    pending = [
        Pending(
            make_request(f"{project}-{user}-{n}/train", project=project, priority=priority), user
        )
        for n, (project, user, priority) in enumerate(jobs)
    ]
    return order(pending, (), {}, now=NOW, tuning=Tuning())


many = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-50, 50)), max_size=40
)


@given(many, st.integers(1, 45))
def test_the_depth_is_shared_by_projects_and_in_them_by_users(
    jobs: list[tuple[str, str, int]], depth: int
) -> None:
    found = _order(*jobs)
    within = tried(found, depth)
    assert within.sum() == min(depth, len(jobs))
    of_project, all_of_project = Counter[str](), Counter[str]()
    of_user, all_of_user = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each, is_tried in zip(found.pending, within.tolist(), strict=True):
        project, user = each.request.project, (each.request.project, each.user)
        # Of a user's own the first in order come first.
        assert not (is_tried and of_user[user] < all_of_user[user])
        all_of_project[project] += 1
        all_of_user[user] += 1
        of_project[project] += is_tried
        of_user[user] += is_tried
    _assert_even(of_project, all_of_project)
    for project in all_of_project:
        mine = {user: n for user, n in all_of_user.items() if user[0] == project}
        _assert_even({user: of_user[user] for user in mine}, mine)


def _assert_even(had: Any, wanted: Any) -> None:
    """Whoever has fewer than somebody else, by more than one, has all that it wants."""
    most = max((had[name] for name in wanted), default=0)
    for name, all_of_it in wanted.items():
        assert had[name] == all_of_it or had[name] >= most - 1, (had, wanted)


def test_what_is_kept_back_counts_nothing() -> None:
    found = _order(*[("a", "x", 0)] * 5)
    pending = [replace(each, held_by="x") for each in found.pending[:3]] + [*found.pending[3:]]
    held = order(pending, (), {}, now=NOW, tuning=Tuning())
    assert tried(held, 2).all()
    assert np.flatnonzero(tried(found, 2)).tolist() == [0, 1]


@pytest.mark.parametrize("reason", KEPT_BACK)
def test_what_is_kept_back_is_what_the_gates_hold_back(reason: dict[str, Any]) -> None:
    pending = Pending(make_request("a/train"), **reason)
    assert pending.is_kept_back(NOW)
    assert pending.is_kept_back(NOW + 61.0) == ("not_before" not in reason)
    world = _world(depth=10)
    world.submit(pending.request, **reason)
    assert world.cycle().waiting["a/train"].trace[-1].check == "gates"


def test_who_is_beyond_the_depth_is_told_how_many_can_run_and_how_many_are_tried() -> None:
    world = _world(depth=2)
    for number in range(5):
        world.submit(make_request(f"waits-{number}/train", gpus=4096))
    told = [each.dominant for each in world.cycle().waiting.values()]
    assert [each.token is ReasonToken.BEHIND_HIGHER_PRIORITY for each in told] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert told[-1].sentence.startswith("5 jobs can run, and 2 of them are tried in a cycle")
