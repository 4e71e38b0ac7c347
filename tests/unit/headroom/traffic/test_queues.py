from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.traffic.queues import HANDLE, Matches, built, changed, minor_of, queues
from headroom.contracts import ClassShare
from headroom.traffic import DSCP, OF_JOBS, TrafficClass, socket_options
from tests.unit.headroom.traffic.builders import make_limit

_JOBS = 2


def test_a_class_is_sure_of_its_share_and_borrows_up_to_its_most() -> None:
    (queue,) = (
        each for each in queues(make_limit()) if each.minor == minor_of(TrafficClass.CONTROL)
    )
    assert queue.rate == pytest.approx(0.98 * 0.05 * 1e9)
    assert queue.ceil == pytest.approx(0.98 * 0.20 * 1e9)


def test_a_share_for_jobs_holds_their_classes_together_and_leaves_control_alone() -> None:
    whole, half = (
        {each.minor: each for each in queues(make_limit(share=share))} for share in (1.0, 0.5)
    )
    assert half[_JOBS].ceil == pytest.approx(0.5 * whole[_JOBS].ceil)
    control, operator = minor_of(TrafficClass.CONTROL), minor_of(TrafficClass.OPERATOR)
    assert (half[control], half[operator]) == (whole[control], whole[operator])
    assert all(half[minor_of(each)].ceil <= half[_JOBS].ceil for each in OF_JOBS)


def test_a_share_of_nothing_leaves_jobs_next_to_nothing() -> None:
    found = {each.minor: each for each in queues(make_limit(share=0.0))}
    assert all(found[minor_of(each)].ceil == 8_000 for each in OF_JOBS)


_SHARE = st.floats(0, 1)
_SHARES = st.dictionaries(st.sampled_from(TrafficClass), st.tuples(_SHARE, _SHARE), min_size=1)


@given(_SHARES, _SHARE, st.floats(1e7, 4e11))
def test_no_guarantees_exceed_the_link_or_what_jobs_may_take(
    shares: dict[TrafficClass, tuple[float, float]], share: float, capacity: float
) -> None:
    classes = [ClassShare(name=n, guaranteed=g, most=m) for n, (g, m) in shares.items()]
    tree = queues(make_limit(classes=classes, share=share, capacity_bits_per_s=capacity))
    found = {each.minor: each for each in tree}
    slack = 8_001 * len(tree)
    of_jobs = sum(found[minor_of(each)].rate for each in OF_JOBS)
    others = sum(found[minor_of(each)].rate for each in TrafficClass if each not in OF_JOBS)
    assert of_jobs <= found[_JOBS].rate + slack
    assert found[_JOBS].rate <= share * capacity + slack
    assert of_jobs + others <= capacity + slack
    assert all(each.rate <= each.ceil <= capacity + slack for each in tree)


def test_parents_come_before_their_children() -> None:
    seen = {0}
    for each in queues(make_limit()):
        assert each.parent in seen
        seen.add(each.minor)


def test_each_mark_and_each_port_leads_to_its_class() -> None:
    matches = Matches({TrafficClass.CHECKPOINT: (9000,)}, unmarked=TrafficClass.ARTIFACT)
    lines = list(built("eth0", queues(make_limit()), matches))
    assert lines[0].endswith(f"htb default 0x{minor_of(TrafficClass.ARTIFACT):x}")
    for traffic_class, code in DSCP.items():
        flow = f"flowid {HANDLE}{minor_of(traffic_class):x}"
        assert any(f"dsfield 0x{code << 2:02x} 0xfc {flow}" in line for line in lines)
        assert any(f"priority 0x{code << 2:02x} 0xfc {flow}" in line for line in lines)
    flow = f"flowid {HANDLE}{minor_of(TrafficClass.CHECKPOINT):x}"
    for end in ("ip sport", "ip dport", "ip6 sport", "ip6 dport"):
        assert any(f"{end} 9000 0xffff {flow}" in line for line in lines)


def test_a_change_touches_neither_the_root_nor_filters() -> None:
    assert all(line.startswith("class replace ") for line in changed("eth0", queues(make_limit())))


def test_marks_are_distinct_and_leave_congestion_bits_alone() -> None:
    assert len(set(DSCP.values())) == len(TrafficClass)
    for each in TrafficClass:
        ((_, _, octet),) = socket_options(each)
        assert octet & 0b11 == 0
        assert octet >> 2 == DSCP[each]
