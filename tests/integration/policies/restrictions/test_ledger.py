"""From issue to verdict: what agents tell, what GPUs did, and what is written down of it."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from policies.restrictions import ledger, store
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.restrictions.tasks import follow
from telemetry.limits.models import LimitReport
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.integration.policies.restrictions.conftest import DRAIN, make_wanted, now

pytestmark = pytest.mark.django_db
RACK = "oslo/A01"
#: of the rack: two nodes of four
GPUS = 8

_seqs = itertools.count(1)


@pytest.fixture
def began() -> datetime:
    """When what is tested came into force: the verdict is due now."""
    return now() - ledger.LAST_LOOK - ledger.SETTLED - timedelta(seconds=1)


def hold(began: datetime, **given: Any) -> Restriction:
    wanted = make_wanted(**{"at": began, "for_s": 3600, **given})
    (row,) = store.apply([wanted], now=began)
    return row


def read(fleet: SmallFleet, at: datetime, power_w: float, temp_c: float = 60.0) -> None:
    """Have the rack's GPUs be read once."""
    only = fleet.nodes_of(RACK)
    fleet.report(at=at.timestamp(), only=only, power_w=power_w, temp_c=temp_c, sm_mhz=1.5 * power_w)


def tell(
    fleet: SmallFleet, row: Restriction, after_s: float, *, gpus: int = GPUS, **given: Any
) -> None:
    """Have agents report on ``row`` so long after it came into force."""
    at = row.in_force_since + timedelta(seconds=after_s)
    places = [(node, i) for node in fleet.nodes_of(RACK) for i in range(4)][:gpus]
    if given.get("state", "applied") != "applied":
        places = [(node, i) for node in fleet.nodes_of(RACK) for i in range(4)][-gpus:]
    for node, index in places:
        LimitReport.objects.update_or_create(
            agent=fleet.agent,
            node=fleet.nodes[node],
            gpu_index=index,
            limit=row.limit_id,
            defaults={
                "kind": row.kind,
                "state": "applied",
                "asked": row.value or 0.0,
                "at": at,
                "received_at": at,
                "boot_id": "b",
                "seq": next(_seqs),
                **given,
            },
        )


def events(row: Restriction) -> dict[str, Any]:
    return {event.kind: event for event in row.events.all()}


def test_the_whole_story_is_told_once(fleet: SmallFleet, began: datetime) -> None:
    for before_s in (50, 30, 10):
        read(fleet, began - timedelta(seconds=before_s), 650.0, 70.0)
    row = hold(began)
    for after_s in (5, 40, 55, 275, 290):
        read(fleet, began + timedelta(seconds=after_s), 560.0, 67.0)
    tell(fleet, row, 4.0)
    for _ in range(2):
        follow()
    assert [event.kind for event in row.events.all()] == [
        *("issued", "in_force", "acknowledged", "applied", "measured", "verdict")
    ]
    told = events(row)
    assert told["acknowledged"].data == {"after_s": 4.0}
    assert told["applied"].text == "asked 560 W, applied in 4 s on 8 of 8 GPUs"
    assert told["measured"].text.endswith("power fell 0.7 kW, 3 °C cooler in 60 s")
    verdict = told["verdict"]
    assert verdict.text == (
        "asked 560 W, applied in 4 s on 8 of 8 GPUs, power fell 0.7 kW, 3 °C cooler in 5 min"
    )
    assert verdict.data["outcome"] == "holds"
    effect = verdict.data["effect"]
    assert (effect["power_before_w"], effect["power_after_w"]) == (5200.0, 4480.0)
    assert (effect["measured"], effect["clock_change_mhz"]) == (GPUS, -135.0)
    told_by_api = api_client().get(f"/api/v1/restrictions/{row.pk}/ledger").json()
    assert (told_by_api["summary"], told_by_api["outcome"]) == (verdict.text, "holds")


def test_steps_come_when_they_are_due(fleet: SmallFleet) -> None:
    began = now() - timedelta(seconds=600)
    row = hold(began)

    def at(seconds: float) -> list[str]:
        ledger.follow(began + timedelta(seconds=seconds))
        return [event.kind for event in row.events.all()][2:]

    assert at(2) == []
    tell(fleet, row, 3.0, gpus=6)
    assert at(5) == ["acknowledged"]
    assert at(59) == ["acknowledged"]
    assert at(61) == ["acknowledged", "applied"]
    assert at(76) == ["acknowledged", "applied", "measured"]
    assert at(314) == ["acknowledged", "applied", "measured"]
    assert at(315)[-1] == "verdict"
    told = events(row)
    assert told["applied"].text == "asked 560 W, applied in 3 s on 6 of 8 GPUs"
    assert told["verdict"].data["outcome"] == "partly"


def test_what_gpus_refuse_is_told_with_why(fleet: SmallFleet, began: datetime) -> None:
    row = hold(began)
    tell(fleet, row, 4.0, state="refused", error="not permitted")
    follow()
    told = events(row)
    assert told["verdict"].text.startswith("asked 560 W, applied on none of 8 GPUs: not permitted")
    assert told["verdict"].data["outcome"] == "not_applied"


def test_what_was_told_of_another_value_does_not_count(fleet: SmallFleet) -> None:
    began = now() - timedelta(seconds=90)
    row = hold(began, value=600.0)
    tell(fleet, row, 4.0)
    (row,) = store.apply(
        [make_wanted(at=began, for_s=3600, value=560.0)], now=began + timedelta(seconds=10)
    )
    ledger.follow(began + timedelta(seconds=20))
    assert "acknowledged" not in events(row)
    tell(fleet, row, 2.0)
    ledger.follow(began + timedelta(seconds=20))
    assert events(row)["applied"].cycle == 2


def test_the_verdict_of_what_ended_early_is_of_its_time(fleet: SmallFleet, began: datetime) -> None:
    for before_s in (50, 30, 10):
        read(fleet, began - timedelta(seconds=before_s), 650.0)
    row = hold(began)
    tell(fleet, row, 2.0)
    ledger.follow(began + timedelta(seconds=5))
    for after_s in (20, 30, 38):
        read(fleet, began + timedelta(seconds=after_s), 550.0)
    read(fleet, began + timedelta(seconds=60), 650.0)
    ended = began + timedelta(seconds=40)
    store.release("rule:rack-power", now=ended, by="system", why="cleared")
    tell(fleet, row, 42.0, state="restored")
    follow()
    verdict = events(row)["verdict"]
    assert verdict.text == ("asked 560 W, applied in 2 s on 8 of 8 GPUs, power fell 0.8 kW in 40 s")
    assert verdict.data["outcome"] == "holds"


def test_of_two_caps_at_once_one_tells_what_fell(fleet: SmallFleet, began: datetime) -> None:
    read(fleet, began - timedelta(seconds=10), 650.0)
    strict = hold(began)
    (loose,) = store.apply(
        [make_wanted(at=began, for_s=3600, value=600.0, owner="rule:other")], now=began
    )
    for after_s in (280, 290, 298):
        read(fleet, began + timedelta(seconds=after_s), 550.0)
    for row in (strict, loose):
        tell(fleet, row, 2.0)
    follow()
    told = events(strict)["verdict"].data["effect"], events(loose)["verdict"].data["effect"]
    assert (told[0]["fell_w"], told[1]["fell_w"]) == (800.0, None)
    assert told[1]["stricter"] == [strict.pk]
    assert events(loose)["verdict"].data["outcome"] == "holds"
    assert events(loose)["verdict"].text.endswith(
        f"nothing of its own: it counts at restriction {strict.pk}"
    )


def test_what_no_agent_sets_is_measured_all_the_same(fleet: SmallFleet, began: datetime) -> None:
    read(fleet, began - timedelta(seconds=10), 650.0)
    row = hold(began, kind=DRAIN, value=None)
    read(fleet, began + timedelta(seconds=290), 100.0)
    follow()
    verdict = events(row)["verdict"]
    assert (verdict.text, verdict.data["outcome"]) == (
        "asked drain, power fell 4.4 kW in 5 min",
        "measured",
    )


def test_what_is_held_or_on_no_place_has_no_verdict(fleet: SmallFleet, began: datetime) -> None:
    rows = [
        hold(began, on="site oslo", kind=DRAIN, value=None),
        hold(began, on="job llama", kind=RestrictionKind.HOLD_FOR_REVIEW, value=None),
    ]
    follow()
    assert [len(row.events.all()) for row in rows] == [2, 2]


def test_a_large_scope_is_sampled(
    fleet: SmallFleet, began: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_READ", 3)
    read(fleet, began - timedelta(seconds=10), 650.0)
    row = hold(began)
    read(fleet, began + timedelta(seconds=290), 550.0)
    follow()
    effect = events(row)["verdict"].data["effect"]
    assert (effect["gpus"], effect["measured"], effect["fell_w"]) == (8, 3, 800.0)


def test_following_nothing_takes_little(
    fleet: SmallFleet, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(8):
        follow()


# --- On hosts and keepers -------------------------------------------------------------------------


SHARE = RestrictionKind.LINK_SHARE
UPLINK = "oslo/A01/uplink"


def say(fleet: SmallFleet, row: Restriction, node: str, *, of: str = "", **given: Any) -> None:
    """Have one host report on ``row``, as a keeper of checkpoints where ``of`` is "-ships"."""
    at = row.in_force_since + timedelta(seconds=4)
    LimitReport.objects.create(
        agent=fleet.agent,
        node=fleet.nodes[node],
        gpu_index=None,
        limit=f"{row.limit_id}{of}",
        **{
            "kind": "link_share", "state": "applied", "asked": 0.5, "at": at, "received_at": at,
            "boot_id": "b", "seq": next(_seqs), **given,
        },
    )  # fmt: skip


def test_a_share_of_a_link_holds_where_hosts_and_keepers_say_so(
    fleet: SmallFleet, began: datetime
) -> None:
    row = hold(began, on=f"link {UPLINK}", kind=SHARE, value=0.5)
    say(fleet, row, "oslo-a01-n1")
    say(fleet, row, "oslo-a01-n2", of="-ships", kind="ship_rate", asked=800.0)
    ledger.follow(now())
    told = events(row)
    assert told["applied"].data["applied"] == told["applied"].data["expected"] == 2
    assert "on 2 of 2 hosts" in told["applied"].text
    assert told["verdict"].data["outcome"] == "holds"


def test_a_host_that_refuses_a_share_is_told_of(fleet: SmallFleet, began: datetime) -> None:
    row = hold(began, on=f"link {UPLINK}", kind=SHARE, value=0.5)
    say(fleet, row, "oslo-a01-n1")
    say(fleet, row, "oslo-a01-n2", state="refused", error="queues of somebody else")
    ledger.follow(now())
    assert events(row)["verdict"].data["outcome"] == "partly"
    assert events(row)["applied"].data["error"] == "queues of somebody else"


def test_a_share_that_nobody_holds_is_said_to_be_that(fleet: SmallFleet, began: datetime) -> None:
    row = hold(began, on=f"link {UPLINK}", kind=SHARE, value=0.5)
    ledger.follow(now())
    told = events(row)
    assert "acknowledged" not in told
    assert "no host and no keeper" in told["applied"].text
    assert told["verdict"].data["outcome"] == "not_applied"


def test_checkpoints_held_at_a_site_are_told_of_by_keepers(
    fleet: SmallFleet, began: datetime
) -> None:
    kind = RestrictionKind.NO_CROSS_SITE_CHECKPOINT
    row = hold(began, on="site oslo", kind=kind, value=None)
    say(fleet, row, "oslo-a01-n1", of="-ships", kind="ship_rate", asked=0.0)
    ledger.follow(now())
    assert "on 1 of 1 hosts" in events(row)["applied"].text
