from __future__ import annotations

from datetime import UTC, datetime

import pytest

from telemetry.spans import ParameterError, parse

NOW = 1_800_000_000.0


def test_without_parameters_it_is_the_last_hour() -> None:
    span = parse({}, NOW)
    assert (span.start, span.end, span.live, span.range) == (NOW - 3600, NOW, True, "1h")


@pytest.mark.parametrize(
    ("text", "length_s"), [("90s", 90), ("15m", 900), ("6h", 21_600), ("2d", 172_800)]
)
def test_a_range_ends_now(text: str, length_s: float) -> None:
    span = parse({"range": text}, NOW)
    assert span.length_s == length_s
    assert span.live


def test_from_and_to_are_unix_seconds_or_iso_8601() -> None:
    at = datetime(2026, 11, 20, 8, 0, tzinfo=UTC).timestamp()
    for text in (str(at), "2026-11-20T08:00", "2026-11-20T08:00:00Z", "2026-11-20T09:00+01:00"):
        span = parse({"from": text, "to": str(at + 60)}, NOW)
        assert (span.start, span.length_s, span.live) == (at, 60, False)


def test_a_time_may_have_as_many_decimals_as_an_answer_gives() -> None:
    for text in ("1795161600.1234567", "1795161600.12345678901234567890"):
        span = parse({"from": text, "to": "1795161700"}, NOW)
        assert span.start == float(text)
    nanoseconds = "2026-11-20T08:00:00.123456789Z"
    assert parse({"from": nanoseconds}, NOW).start_at.microsecond == 123456


def test_a_plus_sign_that_became_a_space_is_understood() -> None:
    span = parse({"from": "2026-11-20T09:00 01:00", "to": "2026-11-20T08:30"}, NOW)
    assert span.length_s == 1800


def test_from_without_to_ends_now() -> None:
    span = parse({"from": str(NOW - 60)}, NOW)
    assert (span.end, span.live) == (NOW, True)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"range": "1w"}, "range"),
        ({"range": "0h"}, "range"),
        ({"range": "-1h"}, "range"),
        ({"range": "99999h"}, "range"),
        ({"range": "1h", "from": "1"}, "range"),
        ({"to": "1"}, "from"),
        ({"from": "yesterday"}, "from"),
        ({"from": "nan"}, "from"),
        ({"from": "1", "to": "1e400"}, "to"),
        ({"from": "1000", "to": "1000"}, "to"),
        ({"from": "2000", "to": "1000"}, "to"),
        ({"from": "1000", "to": "1790000000"}, "from"),
        ({"from": str(NOW + 60)}, "to"),
    ],
)
def test_a_wrong_parameter_is_named(params: dict[str, str], field: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse(params, NOW)
    assert caught.value.field == field
