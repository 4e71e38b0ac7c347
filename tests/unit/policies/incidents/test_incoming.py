"""Alertmanager's webhook, version 4: https://prometheus.io/docs/alerting/latest/configuration."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.firings import Severity
from policies.incidents.grouping import member_key
from policies.incidents.incoming import BadPayload, read
from tests.builders.firings import NOW


def make_alert(status: str = "firing", **given: Any) -> dict[str, Any]:
    labels = {"alertname": "NodeDown", "severity": "critical", "instance": "s1-a01-n1:9100"}
    return {
        "status": status,
        "labels": {**labels, **given.pop("labels", {})},
        "annotations": {"summary": "Node is down", "description": "For 5 minutes"},
        "startsAt": "2026-11-20T11:50:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example.com/graph?g0.expr=up",
        "fingerprint": "d6e3cf4f1a2b3c4d",
        **given,
    }


def make_payload(*alerts: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {
        "version": "4",
        "groupKey": '{}:{alertname="NodeDown"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "headroom",
        "groupLabels": {"alertname": "NodeDown"},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.com",
        "alerts": list(alerts) or [make_alert()],
        **given,
    }


def test_an_alert_is_a_firing() -> None:
    (firing,) = read(make_payload(), NOW).firing
    assert firing.rule == "alertmanager:NodeDown"
    assert str(firing.scope) == "node s1-a01-n1"
    assert firing.severity is Severity.CRITICAL
    assert firing.since == datetime(2026, 11, 20, 11, 50, 0, 123457, UTC)
    assert firing.at == NOW
    assert firing.summary == "Node is down"
    assert firing.labels["fingerprint"] == "d6e3cf4f1a2b3c4d"


def test_resolved_ones_come_apart_and_have_the_same_key() -> None:
    found = read(make_payload(make_alert(), make_alert("resolved")), NOW)
    assert member_key(found.firing[0]) == member_key(found.resolved[0])


def test_without_a_fingerprint_the_labels_tell() -> None:
    one, two, again = (
        make_alert(fingerprint="", labels={"mount": mount}) for mount in ("/", "/data", "/")
    )
    keys = [member_key(each) for each in read(make_payload(one, two, again), NOW).firing]
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize(
    ("labels", "scope"),
    [
        ({"node": "n1", "instance": "x:1"}, "node n1"),
        ({"instance": "", "rack": "A01", "site": "s1"}, "rack s1/A01"),
        ({"instance": "", "rack": "s2/A01", "site": "s1"}, "rack s2/A01"),
        ({"instance": "", "power_domain": "feed-a", "site": "s1"}, "power_domain s1/feed-a"),
        ({"instance": "", "link": "s1/wan"}, "link s1/wan"),
        ({"instance": "", "rack": "A01"}, "site elsewhere"),
        ({"instance": "", "site": "s1"}, "site s1"),
    ],
)
def test_labels_say_where(labels: dict[str, str], scope: str) -> None:
    (firing,) = read(make_payload(make_alert(labels=labels)), NOW).firing
    assert str(firing.scope) == scope


@pytest.mark.parametrize(
    ("text", "severity"),
    [("page", "critical"), ("INFO", "info"), ("odd", "warning"), ("", "warning")],
)
def test_severities_are_mapped(text: str, severity: str) -> None:
    (firing,) = read(make_payload(make_alert(labels={"severity": text})), NOW).firing
    assert firing.severity == severity


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, ""),
        ([], ""),
        ({}, ""),
        ({"version": "4"}, ""),
        (make_payload(version="3"), "version"),
        (make_payload(version=4), "version"),
        (make_payload(alerts={}), "alerts"),
        (make_payload(make_alert("maybe")), "alerts[0].status"),
        (make_payload(make_alert(startsAt="yesterday")), "alerts[0].startsAt"),
        (make_payload(make_alert(startsAt="2026-11-20T11:50:00")), "alerts[0].startsAt"),
        (make_payload(make_alert(labels={"alertname": ""})), "alerts[0].labels.alertname"),
        (make_payload(make_alert(labels={"alertname": "x" * 201})), "alerts[0].labels.alertname"),
        (make_payload(make_alert(labels={"a": "b\0c"})), "alerts[0].labels.a"),
        (make_payload(make_alert(labels={"a": "\ud800"})), "alerts[0].labels.a"),
        (make_payload(make_alert(annotations={"a": "x" * 4001})), "alerts[0].annotations.a"),
        (make_payload(make_alert(labels={str(i): "" for i in range(80)})), "alerts[0].labels"),
        (make_payload(*[make_alert()] * 10_001), "alerts"),
    ],
)
def test_what_is_wrong_is_named(payload: Any, field: str) -> None:
    with pytest.raises(BadPayload) as caught:
        read(payload, NOW)
    assert caught.value.field == field
    assert str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(_JSON, st.dictionaries(st.sampled_from(list(make_alert())), _JSON, max_size=3))
def test_any_json_is_read_or_refused(value: Any, changes: dict[str, Any]) -> None:
    for payload in (value, make_payload(value), make_payload({**make_alert(), **changes})):
        with contextlib.suppress(BadPayload):
            read(payload, NOW)
