from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from admission.core.request import Locality, Placement, Request
from admission.core.shipping import of_attempts, ship_limits
from headroom.traffic import TrafficClass
from policies.restrictions.kinds import RestrictionKind
from policies.traffic import Share, TrafficPolicy
from tests.builders.arrays import make_arrays
from tests.builders.jobs import make_request
from tests.unit.policies.restrictions.builders import make_in_force, make_restriction

FLEET = make_arrays(sites=3)
LOCAL, SHARE = RestrictionKind.NO_CROSS_SITE_CHECKPOINT, RestrictionKind.LINK_SHARE
POLICY = TrafficPolicy(kinds={"wan": {TrafficClass.CHECKPOINT: Share(0.1, 0.5)}})


@dataclass(frozen=True)
class Attempt:
    key: str
    request: Request
    placement: Placement


def attempt(name: str, *sites: str, **given: Any) -> Attempt:
    asked = {"checkpoint_interval_s": 60.0, **given}
    request = make_request(name, **asked)
    placement = Placement(
        gpus=(), nodes=(), peak_w=(), power_cap_w=None, slowdown=0.0, locality=Locality.SITE,
        sites=sites, racks=(), switch_domains=(), storage="",
    )  # fmt: skip
    return Attempt(f"{name}/train/1", request, placement)


ATTEMPTS = [
    attempt("a", "s1"),
    attempt("b", "s2"),
    attempt("c", "s3", job_class="nightly"),
    attempt("silent", "s1", checkpoint_interval_s=None),
]


def rates(*restrictions: object) -> dict[str, list[float]]:
    in_force = make_in_force(*restrictions)  # type: ignore[arg-type]
    found = ship_limits(ATTEMPTS, in_force, FLEET, POLICY)
    return {key: [each.bytes_per_s for each in limits] for key, limits in found.items()}


def test_nothing_is_told_where_nothing_is_restricted() -> None:
    assert rates(make_restriction()) == {}


@pytest.mark.parametrize(
    ("on", "held"),
    [
        ("site s1", {"a"}),
        ("job b", {"b"}),
        ("class nightly", {"c"}),
        ("link s1/wan", {"a", "b"}),
        ("link s1/A01/up", set()),
    ],
)
def test_checkpoints_of_whoever_is_in_scope_stay(on: str, held: set[str]) -> None:
    found = rates(make_restriction(on, kind=LOCAL, value=None))
    assert found == {f"{name}/train/1": [0.0] for name in held}


def test_jobs_at_the_ends_of_a_link_divide_what_checkpoints_get_of_it() -> None:
    row = FLEET.links.index_by_name["s1/wan"]
    capacity = float(FLEET.links.capacity_bits_per_s[row])
    found = rates(make_restriction("link s1/wan", kind=SHARE, value=0.2))
    assert set(found) == {"a/train/1", "b/train/1"}
    assert sum(rate for (rate,) in found.values()) == pytest.approx(0.2 * capacity / 8)
    # A wide share leaves them no more than the class has.
    found = rates(make_restriction("link s1/wan", kind=SHARE, value=0.9))
    assert sum(rate for (rate,) in found.values()) == pytest.approx(0.5 * capacity / 8)


def test_each_limit_is_under_the_name_of_its_restriction() -> None:
    made = make_restriction("site s1", kind=LOCAL, value=None)
    found = ship_limits(ATTEMPTS, make_in_force(made), FLEET, POLICY)
    (limit,) = of_attempts(found, ["a/train/1", "a/train/1", "none"])
    assert limit.id == f"restriction-{made.id}-ships"
    assert limit.expires_at == made.expires_at.timestamp()
