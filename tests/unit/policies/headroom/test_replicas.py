"""How far other sites are behind with checkpoints: of a job, and of all that run at a site."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.headroom.evaluate import evaluate
from policies.headroom.inputs import Past
from policies.headroom.replicas import Replicas, StoreFact, columns, replicas_of
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays
from tests.unit.policies.headroom.scenes import NOW, all_read

OSLO, BERGEN, NARVIK = 11, 12, 13
ROWS = {OSLO: 0, BERGEN: 1, NARVIK: 2}
GB = 1e9


def fact(job: str = "llama", site_id: int = OSLO, saved_s_ago: float = 30.0, **given: Any) -> Any:
    """Return what was told just now of the store at the loop."""
    fields: dict[str, Any] = {
        "run": "nanogpt", "step": 1200, "saved_at": NOW - saved_s_ago, "size_bytes": 5 * GB,
        "lacking_bytes": None, "told_at": NOW, **given,
    }  # fmt: skip
    return StoreFact(job=job, site_id=site_id, **fields)


def behind(
    job: str = "llama", site_id: int = BERGEN, saved_s_ago: float = 630.0, **given: Any
) -> Any:
    """Return what was told of a store that is ten minutes behind."""
    fields = {"step": 1000, "lacking_bytes": 3 * GB, **given}
    return fact(job, site_id, saved_s_ago, **fields)


NOTHING: dict[str, Any] = {"step": None, "saved_at": None, "size_bytes": None}


def of_site(facts: list[StoreFact], site: int = OSLO, now: float = NOW) -> tuple[float, ...]:
    """Return lag in s, in steps and in bytes, and jobs that are bare, at a site."""
    found = columns(replicas_of(facts, ROWS), now, len(ROWS))
    return tuple(float(found[name][ROWS[site]]) for name in found)


def test_a_site_is_as_far_behind_as_its_worst_job() -> None:
    facts = [
        fact("a"), behind("a"), fact("b"), behind("b", saved_s_ago=90.0, step=700),
        fact("c"), behind("c", saved_s_ago=30.0, step=1200, lacking_bytes=0.0),
    ]  # fmt: skip
    assert of_site(facts) == (600.0, 500.0, 3 * GB, 0.0)
    assert of_site(facts[4:]) == (0.0, 0.0, 0.0, 0.0)


def test_it_is_told_of_the_site_where_the_loop_is_and_of_no_other() -> None:
    lag_s, steps, size_bytes, bare = of_site([fact(), behind()], site=BERGEN)
    assert np.isnan([lag_s, steps, size_bytes]).all()
    assert bare == 0.0


def test_the_site_that_is_least_behind_counts() -> None:
    near = behind(site_id=NARVIK, saved_s_ago=50.0, step=1190, lacking_bytes=GB)
    assert of_site([fact(), behind(), near]) == (20.0, 10.0, GB, 0.0)


def test_who_has_nothing_elsewhere_is_bare_and_has_no_lag() -> None:
    bare = behind("bare", **NOTHING)
    lag_s, _, size_bytes, count = of_site([fact("bare"), bare])
    assert np.isnan(lag_s)
    assert (size_bytes, count) == (5 * GB, 1.0)
    # Checkpoints of another run are none of this one.
    assert of_site([fact(), behind(run="before")])[3] == 1.0
    assert of_site([fact("bare"), bare, fact("z"), behind("z")])[::3] == (600.0, 1.0)


@pytest.mark.parametrize(
    "facts",
    [
        [],
        # Nobody has looked at another site; nobody tells of the loop; that site is gone.
        [fact()],
        [behind()],
        [fact(site_id=99), behind()],
        [fact(**NOTHING), behind()],
    ],
    ids=["nothing", "loop alone", "no loop", "no such site", "loop without any"],
)
def test_of_whom_nobody_tells_enough_nothing_is_said(facts: list[StoreFact]) -> None:
    lag_s, *_, bare = of_site(facts)
    assert np.isnan(lag_s)
    assert bare == 0.0


def test_silence_is_not_taken_for_being_level() -> None:
    level = [fact(), behind(saved_s_ago=30.0, step=1200, lacking_bytes=0.0)]
    assert of_site(level, now=NOW + 60)[0] == 0.0
    assert of_site(level, now=NOW + 660)[0] == 600.0
    assert of_site([fact(), behind()], now=NOW + 660)[0] == 1200.0


def test_after_a_move_the_loop_is_where_was_told_last() -> None:
    before = fact(site_id=OSLO, saved_s_ago=900.0, step=900, told_at=NOW - 800)
    now_there = fact(site_id=BERGEN)
    assert np.isnan(of_site([before, now_there], site=OSLO)[0])
    assert of_site([before, now_there], site=BERGEN)[:3] == (870.0, 300.0, 5 * GB)


def test_headroom_has_them_of_each_site_and_of_many_moments() -> None:
    fleet = make_arrays(sites=2)
    rows = {int(key): row for row, key in enumerate(fleet.sites.ids.tolist())}
    first, second = rows
    told = replicas_of([fact(site_id=first), behind(site_id=second)], rows)
    past = replace(Past.none(fleet), replicas=told)
    frame = all_read(fleet)
    one = evaluate(fleet, frame, now=NOW, past=past).table(ScopeKind.SITE).columns
    assert one["checkpoint_lag_s"][0] == 600.0
    assert np.isnan(one["checkpoint_lag_s"][1])
    none = evaluate(fleet, frame, now=NOW).table(ScopeKind.SITE).columns
    assert np.isnan(none["checkpoint_lag_bytes"]).all()
    times = np.array([[NOW], [NOW + 160.0]])
    assert columns(told, times, 2)["checkpoint_lag_s"][:, 0].tolist() == [600.0, 700.0]


_jobs = st.lists(
    st.tuples(st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 1e4)), min_size=1, max_size=5
)


@given(_jobs, st.floats(0, 1e5))
def test_a_site_is_never_less_behind_than_a_job_of_it_nor_with_more_silence(
    jobs: list[tuple[float, float, float]], later_s: float
) -> None:
    facts = []
    for number, (here_s_ago, there_s_ago, told_s_ago) in enumerate(jobs):
        facts += [
            fact(str(number), saved_s_ago=here_s_ago, told_at=NOW - told_s_ago),
            behind(str(number), saved_s_ago=there_s_ago),
        ]
    lag_s = of_site(facts)[0]
    assert lag_s >= max(max(there - here, 0.0) for here, there, _ in jobs) - 1e-3
    assert of_site(facts, now=NOW + later_s)[0] >= lag_s


def test_nothing_told_has_no_rows() -> None:
    assert len(Replicas.none().site) == 0
