"""What events of OpenADR 3 ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from admission.core.curtailment import Ask
from admission.curtailments.openadr.events import Asked, Event, NotAsked, asked_by, duration

LATEST = datetime(2027, 2, 1, tzinfo=UTC)
START = datetime(2027, 1, 15, 17, 0, tzinfo=UTC)


def told(*payloads: tuple[str, list[Any]], units: str | None = "KW", **event: Any) -> list[Any]:
    """Return what an event asks whose intervals have one payload each."""
    given = {
        "id": "e-1",
        "programID": "p-1",
        "createdDateTime": "2027-01-15T16:00:00Z",
        "intervalPeriod": {"start": "2027-01-15T17:00:00Z", "duration": "PT15M"},
        "payloadDescriptors": [{"payloadType": kind, "units": units} for kind, _ in payloads],
        "intervals": [
            {"id": number, "payloads": [{"type": kind, "values": values}]}
            for number, (kind, values) in enumerate(payloads)
        ],
        **event,
    }
    read = msgspec.convert(given, Event)
    return list(asked_by(read, simple_shares=(0.1, 0.25, 0.4), latest=LATEST))


@pytest.mark.parametrize(
    ("kind", "value", "unit", "ask"),
    [
        ("IMPORT_CAPACITY_LIMIT", 500, "KW", Ask(to_w=5e5)),
        ("DISPATCH_SETPOINT", 0.5, "MW", Ask(to_w=5e5)),
        ("DISPATCH_SETPOINT", 700.0, None, Ask(to_w=7e5)),
        ("DISPATCH_SETPOINT_RELATIVE", -120.0, "KW", Ask(by_w=1.2e5)),
        ("SIMPLE", 2, None, Ask(by_share=0.25)),
    ],
)
def test_a_value_becomes_a_limit(kind: str, value: float, unit: str | None, ask: Ask) -> None:
    (found,) = told((kind, [value]), units=unit)
    assert found == Asked("e-1", 0, "e-1", ask, START, START + timedelta(minutes=15))


def test_intervals_follow_each_other() -> None:
    first, second = told(("SIMPLE", [1]), ("SIMPLE", [3]))
    assert second.starts_at == first.ends_at
    assert second.ask == Ask(by_share=0.4)


def test_an_interval_may_have_its_own_time() -> None:
    own = {
        "id": 7,
        "intervalPeriod": {"start": "2027-01-15T20:00:00+01:00", "duration": "PT1H30M"},
        "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [1]}],
    }
    (found,) = told(intervals=[own])
    assert found.starts_at == START + timedelta(hours=2)
    assert found.ends_at - found.starts_at == timedelta(minutes=90)


def test_what_has_no_end_ends_with_the_longest_lease() -> None:
    (found,) = told(
        ("IMPORT_CAPACITY_LIMIT", [1]), intervalPeriod={"start": "2027-01-15T17:00:00Z"}
    )
    assert found.ends_at == LATEST
    (found,) = told(
        ("IMPORT_CAPACITY_LIMIT", [1]),
        intervalPeriod={"start": "2027-01-15T17:00:00Z", "duration": "P9999Y"},
    )
    assert found.ends_at == LATEST


@pytest.mark.parametrize(
    ("kind", "values", "why"),
    [
        ("IMPORT_CAPACITY_LIMIT", ["much"], "one number"),
        ("IMPORT_CAPACITY_LIMIT", [1, 2], "one number"),
        ("IMPORT_CAPACITY_LIMIT", [0], "above 0"),
        ("DISPATCH_SETPOINT_RELATIVE", [100], "asks for more load"),
        ("SIMPLE", [4], "a level from 0 to 3"),
        ("SIMPLE", [True], "one number"),
    ],
)
def test_what_cannot_be_held_says_why(kind: str, values: list[Any], why: str) -> None:
    (found,) = told((kind, values))
    assert isinstance(found, NotAsked)
    assert why in found.why


def test_what_is_not_about_load_asks_for_nothing() -> None:
    assert told(("PRICE", [0.17]), ("SIMPLE", [0])) == []


def test_without_a_time_nothing_is_asked() -> None:
    (found,) = told(("SIMPLE", [1]), intervalPeriod=None)
    assert isinstance(found, NotAsked)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT0S", 0.0),
        ("PT1.5S", 1.5),
        ("PT1H2M3S", 3723.0),
        ("P1DT1H", 90_000.0),
        ("P2W", 1_209_600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "15 min", "PT-1S", "-PT1H", "1H"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        duration(text)
