"""What is sent, against the shapes that the receivers document."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import Any

import msgspec
import pytest

from policies.incidents.channels import PREPARE, alertmanager, check_destination, email
from policies.incidents.channels.content import BadDestination, Content, Destination, Event, Told
from policies.incidents.channels.pagerduty import EVENTS_URL
from policies.incidents.outgoing import Forbidden

NOW = 1_795_000_000.0
HOOK = Destination("https://hooks.example.com/x", "s3cret")


def make_content(event: Event = Event.OPENED, **given: Any) -> Content:
    fields: dict[str, Any] = {
        "event": event,
        "key": "headroom-INC-12-1795000000.3.1",
        "group": "headroom-INC-12-1795000000",
        "title": "rack s1/A01 draws 41.2 kW of 40.0 kW",
        "severity": "critical",
        "at": "2026-11-20T12:00:10+00:00",
        "incident": "INC-12",
        "state": "open",
        "rule": "rack-power",
        "site": "s1",
        "scope_kind": "rack",
        "scope": "s1/A01",
        "opened_at": "2026-11-20T12:00:00+00:00",
        "url": "https://headroom.example.com/incidents/INC-12",
        "count": 1,
        "firings": (
            Told(
                "rack-power",
                "rack",
                "s1/A01",
                "critical",
                "rack s1/A01 draws 41.2 kW of 40.0 kW",
                "2026-11-20T11:59:50+00:00",
                {"power_use": 1.03},
            ),
        ),
        **given,
    }
    return Content(**fields)


def prepared(kind: str, content: Content, destination: Destination = HOOK) -> tuple[Any, Any]:
    request = PREPARE[kind](content, destination, NOW)
    return request, msgspec.json.decode(request.body)


@pytest.mark.parametrize("kind", PREPARE)
@pytest.mark.parametrize("event", list(Event))
def test_every_kind_has_a_word_for_every_event(kind: str, event: Event) -> None:
    request, value = prepared(kind, make_content(event))
    assert value
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Idempotency-Key"] == "headroom-INC-12-1795000000.3.1"
    assert "s3cret" not in request.url


class TestWebhook:
    def test_it_is_signed_with_its_time(self) -> None:
        request, value = prepared("webhook", make_content())
        assert value["version"] == 1
        assert value["event"] == "opened"
        assert value["firings"][0]["values"] == {"power_use": 1.03}
        at = request.headers["X-Headroom-Timestamp"]
        expected = hmac.new(b"s3cret", at.encode() + b"." + request.body, hashlib.sha256)
        assert request.headers["X-Headroom-Signature"] == f"v1={expected.hexdigest()}"
        assert at == str(int(NOW))

    def test_without_a_secret_it_is_not(self) -> None:
        request, _ = prepared("webhook", make_content(), Destination(HOOK.target, ""))
        assert "X-Headroom-Signature" not in request.headers


class TestSlack:
    """https://docs.slack.dev/reference/block-kit/blocks: the limits that it names."""

    def test_it_is_blocks_with_a_text_for_those_who_see_none(self) -> None:
        _, value = prepared("slack", make_content())
        assert value["text"].startswith("[critical] INC-12 opened: rack s1/A01")
        kinds = [block["type"] for block in value["blocks"]]
        assert kinds == ["header", "section", "section", "actions"]
        header, fields, body, actions = value["blocks"]
        assert header["text"]["type"] == "plain_text"
        assert {"type": "mrkdwn", "text": "*Where*\nrack s1/A01"} in fields["fields"]
        assert body["text"]["type"] == "mrkdwn"
        assert actions["elements"][0]["url"].endswith("/incidents/INC-12")

    def test_nothing_is_longer_than_slack_takes(self) -> None:
        told = make_content().firings[0]
        many = tuple(msgspec.structs.replace(told, summary="<" * 2000) for _ in range(20))
        content = make_content(title="<" * 300, body="&" * 9000, scope="<" * 3000, firings=many)
        _, value = prepared("slack", content)
        assert len(value["blocks"]) <= 50
        assert len(value["blocks"][0]["text"]["text"]) <= 150
        for block in value["blocks"][1:]:
            texts = [block["text"]] if "text" in block else block.get("fields", [])
            limit = 3000 if "text" in block else 2000
            assert all(len(text["text"]) <= limit for text in texts)

    def test_nobody_is_mentioned_by_a_name_of_a_rack(self) -> None:
        _, value = prepared("slack", make_content(title="<!channel> & <@U1>", url=""))
        assert "<!channel>" not in value["text"]
        assert "&lt;!channel&gt; &amp;" in value["text"]

    def test_a_message_has_no_incident(self) -> None:
        content = Content(
            event=Event.MESSAGE, key="k", group="g", title="Look", severity="info", at="now",
            body="at this",
        )  # fmt: skip
        _, value = prepared("slack", content)
        assert value["text"] == "Look"
        assert [block["type"] for block in value["blocks"]] == ["header", "section"]


class TestPagerDuty:
    """https://developer.pagerduty.com/docs/send-alert-event: Events API v2."""

    def test_a_trigger(self) -> None:
        request, value = prepared("pagerduty", make_content(), Destination("", "routing"))
        assert request.url == EVENTS_URL
        assert value["routing_key"] == "routing"
        assert value["event_action"] == "trigger"
        assert value["dedup_key"] == "headroom-INC-12-1795000000"
        assert len(value["dedup_key"]) <= 255
        payload = value["payload"]
        assert payload["severity"] in ("critical", "error", "warning", "info")
        assert payload["source"] == "s1/A01"
        assert datetime.fromisoformat(payload["timestamp"])
        assert {"summary", "component", "group", "class", "custom_details"} <= payload.keys()
        assert value["links"][0]["href"]

    @pytest.mark.parametrize(
        ("event", "action"),
        [
            (Event.OPENED, "trigger"),
            (Event.REOPENED, "trigger"),
            (Event.UPDATED, "trigger"),
            (Event.REPEATED, "trigger"),
            (Event.ACKNOWLEDGED, "acknowledge"),
            (Event.RESOLVED, "resolve"),
        ],
    )
    def test_all_that_is_told_of_an_incident_is_one_alert(self, event: Event, action: str) -> None:
        _, value = prepared("pagerduty", make_content(event))
        assert value["event_action"] == action
        assert value["dedup_key"] == "headroom-INC-12-1795000000"
        assert ("payload" in value) == (action == "trigger")

    def test_a_summary_is_cut(self) -> None:
        _, value = prepared("pagerduty", make_content(title="x" * 3000))
        assert len(value["payload"]["summary"]) == 1024

    def test_it_needs_a_routing_key(self) -> None:
        with pytest.raises(BadDestination, match="routing key"):
            check_destination("pagerduty", Destination("", ""))
        check_destination("pagerduty", Destination("", "key"))


class TestAlertmanager:
    """https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml: postableAlerts."""

    def test_an_alert(self) -> None:
        request, value = prepared("alertmanager", make_content())
        assert request.url == "https://hooks.example.com/x/api/v2/alerts"
        assert request.headers["Authorization"] == "Bearer s3cret"
        (alert,) = value
        assert alert["labels"] == {
            "alertname": "rack-power",
            "severity": "critical",
            "incident": "INC-12",
            "site": "s1",
            "rack": "s1/A01",
            "source": "headroom",
        }
        assert all(isinstance(text, str) for text in alert["annotations"].values())
        starts, ends = (datetime.fromisoformat(alert[name]) for name in ("startsAt", "endsAt"))
        assert ends.timestamp() - NOW == 3 * alertmanager.RENEW.total_seconds()
        assert starts.isoformat() == "2026-11-20T12:00:00+00:00"

    def test_it_ends_when_the_incident_is_resolved(self) -> None:
        content = make_content(Event.RESOLVED, resolved_at="2026-11-20T13:00:00+00:00")
        _, (alert) = prepared("alertmanager", content)
        assert alert[0]["endsAt"] == "2026-11-20T13:00:00+00:00"

    def test_the_address_may_have_the_path_already(self) -> None:
        target = "https://am.example.com/api/v2/alerts"
        request, _ = prepared("alertmanager", make_content(), Destination(target, ""))
        assert request.url == target
        assert "Authorization" not in request.headers


class TestEmail:
    def test_it_is_one_message_in_one_thread(self, mailoutbox: list[Any]) -> None:
        content = make_content(body="Line one\nline two")
        email.send(content, Destination("a@example.com, b@example.com", ""))
        (mail,) = mailoutbox
        assert mail.to == ["a@example.com", "b@example.com"]
        assert mail.subject == ("[critical] INC-12 opened: rack s1/A01 draws 41.2 kW of 40.0 kW")
        assert "line two" in mail.body
        assert "https://headroom.example.com/incidents/INC-12" in mail.body
        headers = mail.message()
        assert headers["Message-ID"] == "<headroom-INC-12-1795000000.3.1@headroom>"
        assert headers["References"] == "<headroom-INC-12-1795000000@headroom>"

    def test_a_title_cannot_add_a_header(self, mailoutbox: list[Any]) -> None:
        content = make_content(title="x\r\nBcc: everybody@example.com")
        email.send(content, Destination("a@example.com", ""))
        assert "\n" not in mailoutbox[0].subject
        assert mailoutbox[0].message()["Bcc"] is None

    @pytest.mark.parametrize("target", ["", "nobody", "a@example.com, b", "a@example.com," * 51])
    def test_what_is_no_address_is_said(self, target: str) -> None:
        if target.count(",") > 50:
            target += "b@example.com"
        with pytest.raises(BadDestination):
            check_destination("email", Destination(target, ""))


@pytest.mark.parametrize("kind", ["webhook", "slack", "alertmanager", "pagerduty"])
def test_an_address_of_ours_is_refused(kind: str) -> None:
    with pytest.raises(Forbidden):
        check_destination(kind, Destination("http://169.254.169.254/latest", "x"))
