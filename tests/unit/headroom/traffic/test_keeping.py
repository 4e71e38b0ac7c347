from __future__ import annotations

import pytest

from headroom.agent.traffic.tc import TcError
from headroom.traffic import TrafficClass
from tests.unit.headroom.traffic.builders import DEVICE, Bench, make_limit


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_is_set_before_the_server_asks_for_it(bench: Bench) -> None:
    assert bench.step() == []
    assert bench.kernel.trees == {}


def test_a_limit_is_set_and_reported_once(bench: Bench) -> None:
    bench.say(make_limit(share=0.5))
    (report,) = bench.step()
    assert (report.state, report.kind, report.asked, report.applied, report.node) == (
        "applied", "link_share", 0.5, 0.5, "n1",
    )  # fmt: skip
    assert bench.step() == []
    assert bench.kernel.changes == 1


def test_the_guard_knows_until_when_before_anything_is_set(bench: Bench) -> None:
    bench.kernel.error = TcError("dies here")
    bench.say(make_limit())
    bench.step()
    ((device, until_s),) = bench.guard.noted
    # An answer holds for 60 s of a lease of 600.
    assert (device, until_s) == (DEVICE, 162.0)


def test_of_several_limits_the_least_share_counts_and_all_are_told_of(bench: Bench) -> None:
    bench.say(make_limit(), make_limit(id="l2", share=0.25))
    reports = bench.step()
    assert {(each.limit, each.asked, each.applied) for each in reports} == {
        ("l1", 1.0, 0.25),
        ("l2", 0.25, 0.25),
    }
    bench.say(make_limit())
    told = {each.limit: each.state for each in bench.step()}
    assert told == {"l1": "applied", "l2": "restored"}
    bench.drain()
    assert bench.rate_of(TrafficClass.COLLECTIVE).ceil == pytest.approx(0.98e9)


def test_new_queues_send_less_than_the_link_carries_until_switches_have_drained(
    bench: Bench,
) -> None:
    bench.say(make_limit())
    bench.step()
    assert bench.rate_of(TrafficClass.COLLECTIVE).ceil == pytest.approx(0.8e9)
    assert bench.drain() == []
    assert bench.rate_of(TrafficClass.COLLECTIVE).ceil == pytest.approx(0.98e9)


def test_a_limit_that_changes_drains_nothing(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.drain()
    bench.say(make_limit(id="l2", share=0.5))
    bench.step()
    assert bench.rate_of(TrafficClass.COLLECTIVE).ceil == pytest.approx(0.49e9)


def test_queues_that_are_put_right_drain_again(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.drain()
    bench.kernel.trees[DEVICE] = bench.kernel.trees[DEVICE][:1]
    bench.clock.now += 6
    bench.step()
    assert bench.rate_of(TrafficClass.COLLECTIVE).ceil == pytest.approx(0.8e9)


def test_a_limit_on_another_link_is_left_alone(bench: Bench) -> None:
    bench.say(make_limit(link="another"))
    assert bench.step() == []
    assert bench.kernel.trees == {}


def test_a_lease_ends_by_itself(bench: Bench) -> None:
    bench.say(make_limit(expires_at=30.0))
    bench.step()
    bench.clock.now += 31
    (report,) = bench.step()
    assert report.state == "expired"
    assert bench.kernel.trees == {}
    assert bench.guard.noted[-1] == (DEVICE, 0.0)


def test_it_ends_with_the_servers_silence(bench: Bench) -> None:
    bench.say(make_limit(), valid_for_s=20)
    bench.step()
    bench.clock.now += 21
    bench.step()
    assert bench.kernel.trees == {}


def test_queues_of_somebody_else_are_left_alone_and_that_is_said(bench: Bench) -> None:
    bench.kernel.foreign.add(DEVICE)
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.state, report.error) == ("refused", "somebody else's")
    bench.clock.now += 1
    bench.say()
    bench.step()
    assert bench.kernel.changes == 0


def test_what_somebody_changes_is_put_right(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.kernel.trees[DEVICE] = bench.kernel.trees[DEVICE][:1]
    bench.clock.now += 6
    bench.step()
    assert len(bench.kernel.trees[DEVICE]) > 1


def test_queues_that_somebody_put_in_the_place_of_ours_stay(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    del bench.kernel.trees[DEVICE]
    bench.say()
    (report,) = bench.step()
    assert report.state == "restored"


def test_a_failure_is_told_and_tried_again_after_a_while(bench: Bench) -> None:
    bench.kernel.error = TcError("busy")
    bench.say(make_limit())
    (report,) = bench.step()
    assert (report.state, report.error) == ("failed", "busy")
    bench.kernel.error = None
    bench.step()
    assert bench.kernel.trees == {}
    bench.clock.now += 11
    (report,) = bench.step()
    assert report.state == "applied"


def test_what_cannot_be_undone_is_tried_again(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.say()
    bench.kernel.error = TcError("busy")
    (report,) = bench.step()
    assert report.state == "failed"
    bench.kernel.error = None
    bench.clock.now += 11
    (report,) = bench.step()
    assert report.state == "restored"
    assert bench.kernel.trees == {}


def test_a_stop_undoes_all_and_ends_the_guard(bench: Bench) -> None:
    bench.say(make_limit())
    bench.step()
    bench.keeper.stop()
    assert bench.kernel.trees == {}
    assert bench.guard.is_dismissed
    assert bench.reports.take()[-1].state == "restored"


def test_classes_are_counted_while_they_are_kept_apart(bench: Bench) -> None:
    assert bench.keeper.sent_bytes(DEVICE) == {}
    bench.say(make_limit())
    bench.step()
    bench.kernel.sent = 77
    assert bench.keeper.sent_bytes(DEVICE) == dict.fromkeys(TrafficClass, 77)
    bench.say()
    bench.step()
    assert bench.keeper.sent_bytes(DEVICE) == {}
