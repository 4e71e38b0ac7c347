"""Quotas: what is left of them, and what of that is kept for a job that waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from admission.core.cycle.quotas import Kept, Quota, Quotas
from admission.core.per_user import PerUser, UserLimit
from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Locality, Placement, Request
from admission.core.snapshot import ClassRules, ConcurrencyCap, ProjectShare
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import make_request

NOW = 1000.0
FLEET = make_arrays(racks=2, nodes=2, gpus=8)


def make_quota(limit: float = 16.0, **running: float) -> Quota:
    """Return a quota of ``limit`` GPUs with what runs under it, as ``until_S=GPUS``."""
    quota = Quota(ReasonToken.QUOTA_EXCEEDED, "its project may have", limit, "GPUs", None, {})
    for until, gpus in running.items():
        quota.take(gpus, float(until.removeprefix("until_")))
    return quota


# --- One quota -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "amount", "kept"),
    [
        # All of it is left: kept at once, and the rest may go to others.
        ({}, 6.0, Kept("a", 0, NOW, 10.0, 6.0, NOW)),
        # Two end one after the other; the first gives back enough.
        ({"until_1100": 8.0, "until_1300": 8.0}, 8.0, Kept("a", 0, 1100.0, 0.0, 8.0, NOW)),
        # The first is not enough: it is kept from when the second ends.
        ({"until_1100": 8.0, "until_1300": 8.0}, 12.0, Kept("a", 0, 1300.0, 4.0, 12.0, NOW)),
        # What ends before it can begin anyway is given back by then.
        ({"until_900": 12.0}, 8.0, Kept("a", 0, NOW, 8.0, 8.0, NOW)),
    ],
)
def test_a_job_that_waits_is_kept_as_much_as_it_needs_and_others_may_have_the_rest(
    running: Mapping[str, float], amount: float, kept: Kept
) -> None:
    quota = make_quota(**running)
    quota.keep("a", 0, amount, NOW)
    assert quota.kept == kept


def test_more_than_there_ever_is_is_not_kept() -> None:
    quota = make_quota(limit=4.0)
    quota.keep("a", 0, 5.0, NOW)
    assert quota.kept is None


def test_it_is_kept_for_the_first_in_order_alone() -> None:
    quota = make_quota()
    quota.keep("a", 0, 4.0, NOW)
    quota.keep("b", 1, 4.0, NOW)
    assert quota.kept is not None
    assert quota.kept.key == "a"


def test_what_is_kept_is_in_the_way_of_those_behind_it_that_run_into_it() -> None:
    quota = make_quota(limit=16.0, until_1100=8.0)
    quota.keep("a", 3, 10.0, NOW)  # from 1100 on others have 6
    assert quota.in_the_way(8.0, 1200.0, 4) is not None
    assert quota.in_the_way(6.0, 1200.0, 4) is None  # what is spare
    assert quota.in_the_way(8.0, 1100.0, 4) is None  # over by then
    assert quota.in_the_way(8.0, 1200.0, 2) is None  # before it in the order


def test_what_starts_beside_takes_of_what_is_spare() -> None:
    quota = make_quota()
    quota.keep("a", 0, 10.0, NOW + 100.0)
    quota.spend_spare(4.0, NOW + 50.0)
    assert quota.kept == Kept("a", 0, NOW + 100.0, 6.0, 10.0, NOW + 100.0)
    quota.spend_spare(4.0, NOW + 150.0)
    assert quota.kept == Kept("a", 0, NOW + 100.0, 2.0, 10.0, NOW + 100.0)


def test_whom_it_is_kept_for_takes_of_what_is_given_back_sooner() -> None:
    quota = make_quota(limit=16.0, until_1100=8.0, until_1300=8.0)
    quota.keep("a", 0, 8.0, NOW)
    # Of what the second gives back at once, the first in order has its part.
    quota.give_back(8.0, 1300.0)
    quota.keep_anew(NOW + 10.0)
    assert quota.kept == Kept("a", 0, NOW + 10.0, 0.0, 8.0, NOW + 10.0)
    assert quota.in_the_way(8.0, NOW + 500.0, 1) is not None


def test_it_is_not_kept_from_sooner_than_whom_it_is_for_can_begin() -> None:
    quota = make_quota(limit=16.0, until_1100=8.0, until_1300=8.0)
    quota.keep("a", 0, 8.0, 1200.0)
    quota.give_back(8.0, 1300.0)
    quota.keep_anew(NOW + 10.0)
    assert quota.kept == Kept("a", 0, 1200.0, 8.0, 8.0, 1200.0)


# --- All of them ---------------------------------------------------------------------------------


def make_quotas() -> Quotas:
    project = ProjectShare("vision", gpu_quota=16, power_quota_w=40_000.0)
    rules = ClassRules("training", max_running=2, max_gpus=24)
    cap = ConcurrencyCap(Scope(ScopeKind.RACK, "s1/A01"), 1, 7, "hot")
    return Quotas(FLEET, {"vision": project}, {"training": rules}, (cap,))


def wants(**given: Any) -> Request:
    return make_request("a/train", project="vision", job_class="training", **given)


def placed(gpus: int, **given: Any) -> Placement:
    values: dict[str, Any] = {
        "gpus": tuple(range(gpus)), "nodes": (0,), "peak_w": (4000.0,), "power_cap_w": None,
        "slowdown": 0.0, "locality": Locality.RACK, "sites": ("s1",), "racks": ("s1/A01",),
        "switch_domains": (), "storage": "",
    }  # fmt: skip
    return Placement(**{**values, **given})


def spare(quotas: Quotas) -> dict[str, float]:
    """Return what others may have of each quota from which something is kept, by its unit."""
    return {
        f"{each.unit} of {each.label}": each.kept.spare
        for each in quotas._all()
        if each.kept is not None
    }


def test_of_a_gang_that_may_shrink_only_the_fewest_gpus_are_kept() -> None:
    quotas = make_quotas()
    quotas.keep(wants(gpus=12, min_gpus=4), 0, NOW)
    assert spare(quotas) == {
        "GPUs of its project vision may have": 12.0,
        "GPUs of its class training may have": 20.0,
        "jobs of its class training may have": 1.0,
    }
    assert quotas.kept_for() == {"a/train": 0}


def test_with_a_placement_its_gpus_its_watts_and_its_place_are_kept() -> None:
    quotas = make_quotas()
    request = wants(gpus=12, min_gpus=4)
    quotas.keep(request, 0, NOW, placed(12, nodes=(0, 1), peak_w=(9000.0, 4500.0)))
    assert spare(quotas) == {
        "GPUs of its project vision may have": 4.0,
        "W of its project vision may have": 26_500.0,
        "GPUs of its class training may have": 12.0,
        "jobs of its class training may have": 1.0,
        "jobs of rack s1/A01 may run": 0.0,
    }


def test_what_is_kept_is_forgotten_with_what_was_taken_since() -> None:
    quotas = make_quotas()
    quotas.remember()
    quotas.take(wants(gpus=8, min_gpus=8), placed(8), NOW + 60.0)
    quotas.keep(wants(gpus=8, min_gpus=8), 0, NOW)
    quotas.go_back()
    assert spare(quotas) == {}
    assert all(each.used == 0.0 and each.ends == [] for each in quotas._all())


def test_without_some_jobs_quotas_are_as_if_these_had_never_taken_of_them() -> None:
    quotas = Quotas(FLEET, {"vision": ProjectShare("vision", gpu_quota=16)}, {}, ())
    waiting, behind = make_request("a/train", gpus=12), make_request("b/train", gpus=3)
    quotas.keep(waiting, 0, NOW)
    placement = Placement(
        gpus=(0, 1, 2), nodes=(0,), peak_w=(900.0,), power_cap_w=None, slowdown=0.0,
        locality=Locality.NODE, sites=("s1",), racks=("s1/A01",), switch_domains=(), storage="",
    )  # fmt: skip
    (before,) = quotas._all()
    was = (before.used, list(before.ends), before.kept)
    quotas.take(behind, placement, 5000.0)
    assert (before.used, before.kept) != (was[0], was[2])
    (after,) = quotas.without([(behind, placement, 5000.0)])._all()
    assert (after.used, after.ends, after.kept) == was
    assert before.used == 3.0


# --- Each user -----------------------------------------------------------------------------------


def of_users(**own: UserLimit) -> Quotas:
    """Return the quotas of a project whose users have 8 GPUs and two jobs each, and some others."""
    per_user = PerUser(UserLimit(gpus=8, running=2), own)
    return Quotas(FLEET, {"vision": ProjectShare("vision", per_user=per_user)}, {}, ())


def refused(fitted: Request | tuple[Reason, ...]) -> tuple[Reason, ...]:
    assert isinstance(fitted, tuple)
    return fitted


def test_a_user_at_the_limit_waits_and_others_of_the_project_go_on() -> None:
    quotas = of_users()
    quotas.take(wants(gpus=6, min_gpus=6, user="ada"), placed(6), NOW + 60.0)
    fewer = quotas.fitted(wants(gpus=4, min_gpus=1, user="ada"), NOW + 60.0, 0)
    assert isinstance(fewer, Request)
    assert fewer.gpus == 2
    (why,) = refused(quotas.fitted(wants(gpus=4, min_gpus=4, user="ada"), NOW + 60.0, 0))
    assert (why.token, why.need, why.have) == (ReasonToken.QUOTA_EXCEEDED, 4.0, 2.0)
    assert "each user of its project vision may have 8 GPUs at once" in why.sentence
    for other in (wants(gpus=8, min_gpus=8, user="bob"), wants(gpus=8, min_gpus=8)):
        assert quotas.fitted(other, NOW + 60.0, 0) == other


def test_a_user_runs_so_many_jobs_at_once_whatever_their_size() -> None:
    quotas = of_users()
    for name in ("a/train", "b/train"):
        quotas.take(make_request(name, user="ada"), placed(1), NOW + 60.0)
    (why,) = refused(quotas.fitted(make_request("c/train", user="ada"), NOW + 60.0, 0))
    assert (why.unit, why.have) == ("jobs", 0.0)


def test_a_user_may_have_limits_of_the_own() -> None:
    quotas = of_users(ada=UserLimit(gpus=16))
    sixteen = wants(gpus=16, min_gpus=16, user="ada")
    assert quotas.fitted(sixteen, NOW + 60.0, 0) == sixteen
    # What is not stated of her is as for each.
    quotas.take(make_request("a/train", user="ada"), placed(1), NOW + 60.0)
    quotas.take(make_request("b/train", user="ada"), placed(1), NOW + 60.0)
    (why,) = refused(quotas.fitted(make_request("c/train", user="ada"), NOW + 60.0, 0))
    assert why.unit == "jobs"


def test_what_users_took_is_forgotten_though_they_were_not_known_before() -> None:
    quotas = of_users()
    quotas.take(make_request("a/train", user="ada", gpus=8), placed(8), NOW + 60.0)
    quotas.remember()
    quotas.take(make_request("b/train", user="bob", gpus=8), placed(8), NOW + 60.0)
    quotas.go_back()
    assert not isinstance(quotas.fitted(wants(gpus=8, min_gpus=8, user="bob"), NOW, 0), tuple)
    assert isinstance(quotas.fitted(wants(gpus=1, min_gpus=1, user="ada"), NOW, 0), tuple)


def test_no_user_is_ever_let_have_more_than_the_limit() -> None:
    quotas = of_users()
    assert not quotas.ever_let(wants(gpus=9, min_gpus=9, user="ada"), placed(9))
    assert quotas.ever_let(wants(gpus=8, min_gpus=8, user="ada"), placed(8))
