from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.firings import Severity
from policies.incidents import actions, follow
from policies.incidents.models import Incident
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.firings import make_firing
from tests.builders.fleet import SmallFleet, small_fleet

pytestmark = pytest.mark.django_db
URL = "/api/v1/incidents"


@pytest.fixture
def responder() -> Client:
    return api_client(Role.RESPONDER)


def open_incident(*scopes: str, **given: Any) -> Incident:
    now = timezone.now()
    firings = [
        make_firing(each, since=now, at=now, **given) for each in scopes or ["rack oslo/A01"]
    ]
    (incident,) = follow.fired(firings, now=now)
    return incident


def post(client: Client, incident: Incident, what: str, data: Any = None) -> Any:
    return client.post(f"{URL}/{incident.number}/{what}", data, content_type="application/json")


@pytest.mark.usefixtures("fleet")
class TestReading:
    def test_a_list_with_counts(self, responder: Client) -> None:
        open_incident("rack oslo/A01", "rack oslo/A02")
        open_incident("rack bergen/A01")
        rows = responder.get(URL).json()["results"]
        assert [(row["site"], row["firing"], row["members"]) for row in rows] == [
            ("bergen", 1, 1),
            ("oslo", 2, 2),
        ]
        assert rows[0]["number"] == f"INC-{rows[0]['id']}"

    def test_filters(self, responder: Client) -> None:
        open_incident("rack oslo/A01")
        open_incident("rack bergen/A01")
        expected = {
            "state=open": 2,
            "state=open&state=resolved": 2,
            "state=resolved": 0,
            "severity=warning": 2,
            "severity=critical": 0,
            "site=oslo": 1,
            "rule=rack-heat": 2,
            "scope=bergen/A01": 1,
            "scope=bergen/A09": 0,
            "assignee=nobody": 0,
        }
        found = {
            query: len(responder.get(f"{URL}?{query}").json()["results"]) for query in expected
        }
        assert found == expected

    def test_a_filter_that_is_none_is_refused(self, responder: Client) -> None:
        answer = responder.get(f"{URL}?state=odd")
        assert answer.status_code == 400
        assert answer.json()["error"]["field"] == "state"

    def test_the_detail_has_members_evidence_and_timeline(
        self, responder: Client, fleet: SmallFleet
    ) -> None:
        incident = open_incident("rack oslo/A01", "gpu oslo-a01-n1/0", "zone oslo/hall-1")
        for number in (incident.number, str(incident.pk)):
            shown = responder.get(f"{URL}/{number}").json()
            assert shown["number"] == incident.number
        members = {each["scope_name"]: each for each in shown["first_members"]}
        rack = members["oslo/A01"]
        assert rack["values"] == {"thermal_margin_c": 3.5}
        assert (rack["state"], rack["silenced"]) == ("firing", False)
        gpu = fleet.gpu("oslo-a01-n1")
        (evidence,) = members["oslo-a01-n1/0"]["evidence"]
        assert evidence["href"].startswith(f"/api/v1/series?kind=gpu&id={gpu.pk}&from=")
        assert responder.get(evidence["href"]).status_code == 200
        assert responder.get(rack["evidence"][0]["href"]).status_code == 200
        assert members["oslo/hall-1"]["evidence"] == []
        assert [entry["kind"] for entry in shown["timeline"]] == ["opened"]

    def test_members_and_timeline_come_in_pages(self, responder: Client) -> None:
        incident = open_incident(*[f"rack oslo/X{number:03}" for number in range(210)])
        for word in range(5):
            post(responder, incident, "comment", {"text": f"word {word}"})
        shown = responder.get(f"{URL}/{incident.number}").json()
        assert len(shown["first_members"]) == 200
        pages, url = [], f"{URL}/{incident.number}/members?page_size=100"
        while url:
            page = responder.get(url).json()
            pages += [row["id"] for row in page["results"]]
            url = page["next"]
        assert len(set(pages)) == len(pages) == 210
        newest = responder.get(f"{URL}/{incident.number}/timeline?page_size=2").json()
        assert [row["text"] for row in newest["results"]] == ["word 4", "word 3"]

    def test_queries_do_not_grow_with_members(
        self, responder: Client, django_assert_max_num_queries: Any
    ) -> None:
        incident = open_incident(*[f"rack oslo/X{number:03}" for number in range(150)])
        responder.get(f"{URL}/{incident.number}")
        # Three of them for what is done about it now.
        with django_assert_max_num_queries(11):
            responder.get(f"{URL}/{incident.number}")
        with django_assert_max_num_queries(6):
            responder.get(URL)

    def test_one_that_is_not_there(self, responder: Client) -> None:
        for number in ("INC-999999", "0", "INC-x", "12x", "9" * 30):
            assert responder.get(f"{URL}/{number}").status_code == 404


@pytest.mark.usefixtures("fleet")
class TestActing:
    def test_acknowledging_takes_it_on(self) -> None:
        user = make_user(Role.RESPONDER, username="kari")
        client = Client(headers=bearer(make_token(user)))
        incident = open_incident()
        shown = post(client, incident, "acknowledge").json()
        assert shown["state"] == "acknowledged"
        assert (shown["acknowledged_by"], shown["assignee"]) == ("kari", "kari")
        assert shown["timeline"][-1]["by"] == "kari"
        assert AuditEntry.objects.get(action="incident.acknowledged").target == incident.number

    def test_the_first_who_acknowledges_counts(self, responder: Client) -> None:
        incident = open_incident()
        first = post(responder, incident, "acknowledge").json()["acknowledged_by"]
        second = post(api_client(Role.OPERATOR), incident, "acknowledge").json()
        assert second["acknowledged_by"] == first
        assert AuditEntry.objects.filter(action="incident.acknowledged").count() == 1

    def test_assigning(self, responder: Client) -> None:
        make_user(Role.VIEWER, username="ola")
        incident = open_incident()
        assert post(responder, incident, "assign", {"assignee": "ola"}).json()["assignee"] == "ola"
        refused = post(responder, incident, "assign", {"assignee": "nobody"})
        assert refused.status_code == 400
        assert refused.json()["error"]["field"] == "assignee"
        assert post(responder, incident, "assign", {"assignee": ""}).json()["assignee"] == ""

    def test_commenting_also_after_the_end(self, responder: Client) -> None:
        incident = open_incident()
        post(responder, incident, "close", {"reason": "false alarm"})
        shown = post(responder, incident, "comment", {"text": "It was the sensor."}).json()
        assert [entry["kind"] for entry in shown["timeline"]] == ["opened", "closed", "comment"]

    def test_closing_says_why(self, responder: Client) -> None:
        incident = open_incident()
        assert post(responder, incident, "close", {}).json()["error"]["field"] == "reason"
        shown = post(responder, incident, "close", {"reason": "false alarm"}).json()
        assert (shown["state"], shown["resolution"]) == ("closed", "false alarm")
        assert shown["first_members"][0]["state"] == "dismissed"
        again = post(responder, incident, "close", {"reason": "x"})
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "wrong_state"

    def test_silencing_one_member(self, responder: Client) -> None:
        incident = open_incident("rack oslo/A01", "rack oslo/A02")
        member = incident.members.get(scope_name="oslo/A01")
        until = (timezone.now() + timedelta(hours=1)).isoformat()
        body = {"member": member.pk, "until": until, "reason": "part is ordered"}
        shown = post(responder, incident, "silence-member", body).json()
        silenced = {each["scope_name"]: each["silenced"] for each in shown["first_members"]}
        assert silenced == {"oslo/A01": True, "oslo/A02": False}
        shown = post(responder, incident, "silence-member", {"member": member.pk}).json()
        assert not any(each["silenced"] for each in shown["first_members"])
        kinds = [entry["kind"] for entry in shown["timeline"]]
        assert kinds[-2:] == ["member_silenced", "member_heard"]

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"member": 0}, "member"),
            ({"member": 10**9}, "member"),
            ({"until": "2001-01-01T00:00:00Z"}, "until"),
            ({"until": "2999-01-01T00:00:00Z"}, "until"),
            ({"until": "soon"}, "until"),
            ({"reason": ""}, "reason"),
        ],
    )
    def test_what_is_wrong_is_named(
        self, responder: Client, change: dict[str, Any], field: str
    ) -> None:
        incident = open_incident()
        until = (timezone.now() + timedelta(hours=1)).isoformat()
        body = {"member": incident.members.get().pk, "until": until, "reason": "x", **change}
        refused = post(responder, incident, "silence-member", body)
        assert refused.status_code == 400
        assert refused.json()["error"]["field"] == field

    def test_a_member_of_another_incident_is_not_its_own(self, responder: Client) -> None:
        one, other = open_incident(), open_incident("rack bergen/A01")
        refused = post(responder, one, "silence-member", {"member": other.members.get().pk})
        assert refused.status_code == 400

    @pytest.mark.parametrize("role", [Role.VIEWER, Role.ML_USER])
    def test_it_takes_a_responder(self, role: Role) -> None:
        incident, client = open_incident(), api_client(role)
        for what in ("acknowledge", "assign", "comment", "close", "silence-member"):
            assert post(client, incident, what, {}).status_code == 403
        assert client.get(f"{URL}/{incident.number}").status_code == 200
        assert incident.timeline.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_who_acknowledge_at_once_count_once() -> None:
    small_fleet(racks_per_row=1, nodes_per_rack=1, gpus_per_node=1)
    incident = open_incident(severity=Severity.CRITICAL)
    users = [make_user(Role.RESPONDER) for _ in range(4)]
    start = threading.Barrier(len(users))

    def acknowledge(user: Any) -> None:
        try:
            start.wait(60)
            actions.acknowledge(user, incident, now=timezone.now())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=acknowledge, args=[user]) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert incident.timeline.filter(kind="acknowledged").count() == 1
