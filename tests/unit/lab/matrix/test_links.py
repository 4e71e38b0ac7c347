"""Trouble of links: what comes when, and what is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.matrix.faults.links import Flow, Link, Trouble

troubles = st.builds(
    Trouble,
    latency_s=st.floats(0, 0.2),
    jitter_s=st.floats(0, 0.05),
    loss_share=st.floats(0, 0.9),
    bits_per_s=st.none() | st.floats(1e4, 1e9),
)


def link_with(trouble: Trouble) -> Link:
    link = Link("sync")
    link.begin(0, trouble)
    return link


@given(troubles, st.lists(st.tuples(st.floats(0, 0.01), st.integers(40, 1500)), max_size=50))
def test_packets_come_in_order_and_never_before_they_were_sent(
    trouble: Trouble, packets: list[tuple[float, int]]
) -> None:
    link, flow, now_s, last_s = link_with(trouble), Flow(), 0.0, 0.0
    for wait_s, size in packets:
        now_s += wait_s
        due_s = link.due_s(flow, size, now_s)
        if due_s is not None:
            assert due_s >= max(now_s, last_s)
            last_s = due_s


@given(st.floats(1e5, 1e7), st.integers(1, 200))
def test_a_slow_link_carries_no_more_than_its_rate(bits_per_s: float, count: int) -> None:
    link, flow = link_with(Trouble(bits_per_s=bits_per_s)), Flow()
    came = [due for _ in range(count) if (due := link.due_s(flow, 1500, 0.0)) is not None]
    assert came[-1] == pytest.approx(len(came) * 1500 * 8 / bits_per_s)
    # What would wait longer than half a second is dropped.
    assert came[-1] <= 0.5 + 2 * 1500 * 8 / bits_per_s


def test_without_trouble_everything_comes_at_once() -> None:
    link = Link("sync")
    assert link.due_s(Flow(), 1500, 3.0) == 3.0
    assert link.stream_due_s(Flow(), 10**6, 3.0, segment=1448, timeout_s=0.2) == 3.0


def test_the_share_that_is_lost_is_the_share_that_was_asked_for() -> None:
    link = link_with(Trouble(loss_share=0.2))
    lost = sum(link.due_s(Flow(), 100, 0.0) is None for _ in range(5000))
    assert 850 < lost < 1150


def test_a_cut_link_carries_nothing_until_it_is_over() -> None:
    link = link_with(Trouble(is_cut=True))
    assert link.due_s(Flow(), 100, 0.0) is None
    link.end(0)
    assert link.due_s(Flow(), 100, 0.0) == 0.0


def test_what_is_lost_of_a_stream_comes_later() -> None:
    link = link_with(Trouble(loss_share=0.5))
    late = [link.stream_due_s(Flow(), 1448, 0.0, segment=1448, timeout_s=0.2) for _ in range(200)]
    assert min(late) == 0.0
    assert sum(due_s >= 0.2 for due_s in late) == pytest.approx(100, abs=30)


def test_faults_at_once_add_up_and_end_apart() -> None:
    link = link_with(Trouble(latency_s=0.1, bits_per_s=1e6))
    link.begin(1, Trouble(latency_s=0.2, loss_share=0.5, bits_per_s=1e5))
    assert link.trouble.latency_s == pytest.approx(0.3)
    assert link.trouble.bits_per_s == 1e5
    link.end(1)
    assert link.trouble == Trouble(latency_s=0.1, bits_per_s=1e6)


def test_how_fast_a_link_is_counts_only_when_it_is_used() -> None:
    link = Link("storage")
    assert link.busy_bits_per_s() is None
    for at_s in (0.0, 0.01, 10.0):
        link.count(500, at_s)
    assert link.busy_bits_per_s() == pytest.approx(1500 * 8 / 0.1)
