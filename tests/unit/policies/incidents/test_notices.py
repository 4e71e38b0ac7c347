from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.incidents.channels.content import Event
from policies.incidents.notices import Last, Situation, event_now, fingerprint
from policies.incidents.outbox import backoff_s
from tests.builders.firings import NOW

HOUR = timedelta(hours=1)
OPEN = fingerprint("open", "warning", ["a"])
MORE = fingerprint("open", "warning", ["a", "b"])
ACK = fingerprint("acknowledged", "warning", ["a"])
ACK_MORE = fingerprint("acknowledged", "warning", ["a", "b"])


def last(event: Event, digest: str = OPEN, ago: timedelta = timedelta(minutes=1)) -> Last:
    return Last(event, digest, NOW - ago)


@pytest.mark.parametrize(
    ("state", "shows", "digest", "told", "renews", "expected"),
    [
        # A new one
        ("open", True, OPEN, None, False, Event.OPENED),
        ("open", False, OPEN, None, False, None),
        ("acknowledged", True, ACK, None, False, Event.OPENED),
        ("resolved", False, OPEN, None, False, None),
        # The same again
        ("open", True, OPEN, last(Event.OPENED), False, None),
        ("open", True, OPEN, last(Event.OPENED, ago=HOUR), False, Event.REPEATED),
        ("open", False, OPEN, last(Event.OPENED, ago=HOUR), False, None),
        ("acknowledged", True, ACK, last(Event.ACKNOWLEDGED, ACK, HOUR), False, None),
        ("acknowledged", True, ACK, last(Event.ACKNOWLEDGED, ACK, HOUR), True, Event.REPEATED),
        # News
        ("open", True, MORE, last(Event.OPENED), False, Event.UPDATED),
        ("acknowledged", True, ACK, last(Event.OPENED), False, Event.ACKNOWLEDGED),
        ("acknowledged", True, ACK_MORE, last(Event.ACKNOWLEDGED, ACK), False, Event.UPDATED),
        ("acknowledged", True, ACK_MORE, last(Event.UPDATED, ACK_MORE), False, None),
        # The end, once, and what comes after
        ("resolved", False, OPEN, last(Event.OPENED), False, Event.RESOLVED),
        ("resolved", False, OPEN, last(Event.RESOLVED), False, None),
        ("open", True, OPEN, last(Event.RESOLVED), False, Event.REOPENED),
    ],
)
def test_what_a_channel_is_told(
    state: str, shows: bool, digest: str, told: Last | None, renews: bool, expected: Event | None
) -> None:
    situation = Situation(state, shows, digest)
    assert event_now(situation, told, now=NOW, repeat=HOUR, renews=renews) == expected


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "acknowledged", "resolved"]),
        st.booleans(),
        st.sampled_from(["a", "ab"]),
        st.integers(1, 90),
    ),
    max_size=30,
)


@given(_STEPS)
def test_a_channel_hears_of_an_end_only_after_a_beginning(
    steps: list[tuple[str, bool, str, int]],
) -> None:
    now, told, heard = NOW, None, False
    for state, shows, keys, minutes in steps:
        now += timedelta(minutes=minutes)
        situation = Situation(state, shows, fingerprint(state, "warning", keys))
        event = event_now(situation, told, now=now, repeat=HOUR, renews=False)
        # Asked again at once, there is nothing more to say.
        if event is not None:
            told = Last(event, situation.fingerprint, now)
            assert event_now(situation, told, now=now, repeat=HOUR, renews=False) is None
        if event in (Event.OPENED, Event.REOPENED):
            assert not heard
            heard = True
        elif event is Event.RESOLVED:
            assert heard
            heard = False
        elif event is not None:
            assert heard


def test_waits_grow_up_to_minutes_and_differ() -> None:
    waits = [backoff_s(failures, 1.0) for failures in range(1, 12)]
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
    assert max(waits) == 300.0
    assert backoff_s(3, 0.0) == 4.0
    assert backoff_s(10_000, 0.5) <= 300.0
