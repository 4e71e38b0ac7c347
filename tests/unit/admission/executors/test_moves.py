"""Which jobs may go on in another scheduler, and in which."""

from __future__ import annotations

import pytest

from admission.core.response.fallback import Fallback
from admission.executors.schedulers import moves
from headroom.schedulers.contract import JobState, SchedulerJob


def job(**given: object) -> SchedulerJob:
    said = {"ref": "7", "comment": "headroom: move_to=b", "can_requeue": True, **given}
    return SchedulerJob(state=JobState.HELD, submitted_at=0.0, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "given", "may"),
    [
        ("slurm", {}, True),
        ("slurm", {"comment": "headroom: responses=migrate"}, False),
        ("slurm", {"can_requeue": False}, False),
        ("slurm", {"ref": "7_3"}, False),
        ("kueue", {}, False),
    ],
)
def test_a_job_may_move_where_its_owner_says_so_and_it_can_be_submitted_again(
    kind: str, given: dict[str, object], may: bool
) -> None:
    assert moves.may_move(kind, job(**given)) is may


@pytest.mark.parametrize(
    ("state", "sites", "allowed"),
    [
        (Fallback.PRIMARY_SITE, ["oslo"], True),
        (Fallback.REGIONAL, ["bergen"], False),
        (Fallback.REGIONAL, ["oslo"], True),
        # Its scheduler has nodes elsewhere, too.
        (Fallback.REGIONAL, ["bergen", "oslo"], True),
        (Fallback.LOCAL_ONLY, ["oslo"], False),
        (Fallback.LOCAL_ONLY, ["bergen"], True),
        (Fallback.HELD, ["bergen"], True),
    ],
)
def test_a_job_leaves_a_scheduler_whose_sites_it_may_not_use(
    state: Fallback, sites: list[str], allowed: bool
) -> None:
    assert moves.is_allowed(state, "bergen", sites) is allowed


OPEN = {"a": True, "b": True, "c": False, "d": True}


@pytest.mark.parametrize(
    ("names", "but", "last", "found"),
    [
        ("bd", "a", "", "b"),
        ("cd", "a", "", "d"),
        ("c", "a", "", ""),
        ("x", "a", "", ""),
        ("ab", "a", "", "b"),
        # One that refused is followed by the next, in a circle.
        ("bda", "", "b", "d"),
        ("bda", "", "a", "b"),
        ("b", "", "b", "b"),
    ],
)
def test_of_several_the_first_that_takes_jobs_is_taken(
    names: str, but: str, last: str, found: str
) -> None:
    assert moves.next_of(names, OPEN, but=but, last=last) == found
