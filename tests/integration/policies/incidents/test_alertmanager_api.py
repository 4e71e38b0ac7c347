from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.incidents import follow
from policies.incidents.api import alertmanager
from policies.incidents.models import Incident, IncidentMember
from tests.builders.accounts import api_client
from tests.builders.firings import NOW, make_firing
from tests.unit.policies.incidents.test_incoming import make_alert, make_payload

pytestmark = pytest.mark.django_db
URL = "/api/v1/alertmanager"


@pytest.fixture
def client() -> Client:
    return api_client(Role.RESPONDER)


def post(client: Client, data: Any) -> Any:
    return client.post(URL, data, content_type="application/json")


def alert(status: str = "firing", node: str = "oslo-a01-n1", mount: str = "/") -> dict[str, Any]:
    labels = {"instance": f"{node}:9100", "mount": mount}
    return make_alert(status, labels=labels, fingerprint=f"{node}{mount}")


@pytest.mark.usefixtures("fleet")
def test_alerts_become_an_incident_and_end_it(client: Client) -> None:
    both = [alert(), alert(mount="/data")]
    answer = post(client, make_payload(*both))
    assert answer.status_code == 200, answer.content
    incident = Incident.objects.get()
    assert answer.json() == {"firing": 2, "resolved": 0, "opened": [incident.number]}
    assert (incident.site, incident.severity) == ("oslo", "critical")
    assert incident.members.count() == 2
    assert AuditEntry.objects.get(action="alertmanager.opened")
    # Sent again, as Alertmanager does, it changes nothing.
    assert post(client, make_payload(*both)).json()["opened"] == []
    assert incident.timeline.count() == 1
    post(client, make_payload(alert("resolved"), alert(mount="/data"), status="firing"))
    incident.refresh_from_db()
    assert incident.quiet_since is None
    post(client, make_payload(alert("resolved"), alert("resolved", mount="/data")))
    incident.refresh_from_db()
    assert incident.quiet_since is not None
    assert not IncidentMember.objects.filter(cleared_at=None).exists()


@pytest.mark.usefixtures("fleet")
def test_what_it_brings_to_light_is_left_for_the_loop(client: Client) -> None:
    follow.take([make_firing("rack oslo/A01")], now=NOW)
    IncidentMember.objects.update(handed_over=False)
    post(client, make_payload(alert()))
    assert not IncidentMember.objects.filter(handed_over=True).exists()


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "body"),
        ([], "body"),
        (make_payload(version="3"), "version"),
        (make_payload(make_alert("maybe")), "alerts[0].status"),
        (make_payload(make_alert(labels={"alertname": ""})), "alerts[0].labels.alertname"),
        (make_payload(make_alert(labels={"a": "b\0c"})), "alerts[0].labels.a"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_taken(
    client: Client, payload: Any, field: str
) -> None:
    answer = post(client, payload)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field
    assert not Incident.objects.exists()


def test_what_is_too_long_is_not_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alertmanager.AlertsParser, "max_bytes", 1000)
    answer = post(client, make_payload(*[alert()] * 10))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_long"


def test_what_is_no_json_is_refused(client: Client) -> None:
    answer = client.post(URL, b"{", content_type="application/json")
    assert answer.status_code == 400


def test_it_takes_a_responder() -> None:
    assert post(api_client(Role.VIEWER), make_payload()).status_code == 403
    assert post(Client(), make_payload()).status_code == 401
