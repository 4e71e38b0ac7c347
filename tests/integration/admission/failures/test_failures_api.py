"""Failures are told with cause, evidence and rate, and name nobody's job to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from fleet import snapshot
from fleet.models import Gpu, Node, PowerDomain, Rack
from headroom.contracts import ThrottleCause
from policies.incidents.models import Incident
from policies.restrictions.models import Restriction
from telemetry.faults.models import EccEvent
from telemetry.models import Agent, AgentSilence, ThrottleEvent, XidEvent
from telemetry.throttle.rules import Severity
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.agents import make_agent
from tests.builders.readings import make_node
from tests.integration.admission.failures.scenes import at, end_job, observe, two_nodes, xid

pytestmark = pytest.mark.django_db

URL = "/api/v1/failures"


@pytest.fixture(autouse=True)
def nodes(db: None) -> None:
    two_nodes()


def ask(params: Mapping[str, str] | None = None, role: Role = Role.OPERATOR) -> dict[str, Any]:
    answer = api_client(role).get(URL, params or {})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def groups(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in found["groups"]}


def only(found: Mapping[str, Any]) -> dict[str, Any]:
    (failure,) = found["failures"]
    assert isinstance(failure, dict)
    return failure


def test_a_fleet_without_failures_has_a_rate_of_at_most_three_in_its_hours() -> None:
    fleet = ask()["fleet"]
    assert fleet["device_h"] == pytest.approx(960.0, rel=1e-3)
    assert (fleet["failures"], fleet["rate_per_h"], fleet["rate_lower_per_h"]) == (0, 0.0, 0.0)
    assert fleet["rate_upper_per_h"] * 960.0 == pytest.approx(2.9957, rel=1e-3)
    assert (fleet["mtbf_h"], fleet["every_h"]) == (None, None)
    assert fleet["mtbf_lower_h"] == pytest.approx(960.0 / 2.9957, rel=1e-3)


def test_a_gpu_that_fell_off_the_bus_and_the_job_on_it_are_one_failure_of_hardware() -> None:
    xid("n1", 79, 5.0, gpu=1)
    end_job("llama", 5.0, "failed", why="n1: exit code 1")
    found = ask()
    failure = only(found)
    assert (failure["cause"], failure["component"]) == ("hardware", "gpu")
    assert (failure["nodes"], failure["gpu"]) == (["n1"], 1)
    assert failure["jobs"] == ["llama/train/1"]
    assert [each["kind"] for each in failure["evidence"]] == ["gpu", "exit"]
    assert failure["evidence"][0]["text"] == "Xid 79: GPU fell off the bus"
    assert found["fleet"]["causes"]["hardware"] == 1
    # 4 GPUs for ten days with one failure: one of them fails every 240 hours.
    assert found["fleet"]["mtbf_h"] == pytest.approx(960.0, rel=1e-3)
    assert found["fleet"]["every_h"] == pytest.approx(240.0, rel=1e-3)


def test_rates_are_by_component_model_rack_and_site() -> None:
    xid("n1", 79, 5.0)
    xid("n2", 48, 9.0)
    EccEvent.objects.create(
        gpu=Gpu.objects.get(node__name="n2", index=1), since=at(30.1), at=at(30.0), count=2, total=2
    )
    by_component = groups(ask())
    assert by_component["gpu_memory"]["failures"] == 2
    assert by_component["gpu"]["failures"] == 1
    assert by_component["node"]["device"] == "node"
    assert by_component["node"]["device_h"] == pytest.approx(480.0, rel=1e-3)
    assert groups(ask({"by": "model"}))["H100"]["failures"] == 3
    by_rack = groups(ask({"by": "rack"}))
    assert {name: each["failures"] for name, each in by_rack.items()} == {
        "oslo/A01": 1, "oslo/A02": 2,
    }  # fmt: skip
    assert by_rack["oslo/A01"]["device_h"] == pytest.approx(480.0, rel=1e-3)
    assert groups(ask({"by": "site"}))["oslo"]["failures"] == 3


def test_a_program_that_fails_counts_for_no_gpu() -> None:
    end_job("llama", 3.0, "failed", why="n1: exit code 1")
    xid("n1", 31, 3.0)
    found = ask({"by": "model"})
    assert only(found)["cause"] == "software"
    assert [each["kind"] for each in only(found)["evidence"]] == ["program_error", "exit"]
    assert found["groups"][0]["causes"]["software"] == 1
    assert (found["groups"][0]["failures"], found["fleet"]["failures"]) == (0, 0)
    assert groups(ask())["program"]["failures"] == 1


def told(kind: str, node: str, text: str = "KeyError", before_s: float = 0.0) -> dict[str, Any]:
    return {"kind": kind, "node": node, "text": text, "before_s": before_s}


@pytest.mark.parametrize(
    ("kind", "cause", "component", "of"),
    [
        ("exception", "software", "program", ["n2"]),
        ("told_nvlink", "hardware", "nvlink", ["n2"]),
        ("storage", "network", "storage", ["n2"]),
        # What is said of a collective may be of any of its nodes.
        ("collective_broken", "network", "network", ["n1", "n2"]),
        ("collective_hung", "unknown", "collective", ["n1", "n2"]),
    ],
)
def test_what_output_tells_attributes_a_job_that_failed(
    kind: str, cause: str, component: str, of: list[str]
) -> None:
    end_job(
        "llama", 3.0, "failed", {"n1": [0], "n2": [0]}, why="n1: exit code 1",
        told=told(kind, "n2", "words"),
    )  # fmt: skip
    failure = only(ask())
    assert (failure["cause"], failure["component"]) == (cause, component)
    assert failure["nodes"] == of
    assert failure["evidence"][0]["text"] == "llama/train/1 failed: n1: exit code 1; n2: words"


def test_an_error_that_was_logged_as_a_collective_began_to_hang_is_why_it_hung() -> None:
    xid("n2", 74, 3.5)
    end_job(
        "llama", 3.0, "failed", {"n1": [0], "n2": [0]},
        told=told("collective_hung", "n1", before_s=1800.0),
    )  # fmt: skip
    failure = only(ask())
    assert (failure["cause"], failure["component"], failure["nodes"]) == (
        "hardware", "nvlink", ["n2"],
    )  # fmt: skip


@pytest.mark.parametrize(("severity", "count"), [("Fatal", 1), ("Non-fatal", 0)])
def test_a_fatal_error_of_a_switch_is_a_failure_of_nvlink(severity: str, count: int) -> None:
    XidEvent.objects.create(
        node=Node.objects.get(name="n1"), ts=at(2.0), xid=20034,
        text=f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, {severity}, Link 32 Fault Up",
    )  # fmt: skip
    failures = ask()["failures"]
    assert len(failures) == count
    for failure in failures:
        assert failure["component"] == "nvlink"
        assert failure["evidence"][0]["text"] == "SXid 20034: fatal error of an NVSwitch"


def test_warnings_and_errors_of_programs_are_no_failures_by_themselves() -> None:
    for code in (63, 92, 31, 13, 45):
        xid("n1", code, 2.0)
    assert ask()["failures"] == []


def test_a_node_that_is_lost_without_a_trace_is_of_unknown_cause() -> None:
    end_job("llama", 3.0, "lost", why="n1: not heard for 60 s")
    failure = only(ask())
    assert (failure["cause"], failure["component"], failure["nodes"]) == ("unknown", "node", ["n1"])


def test_a_node_lost_while_its_feed_or_its_zone_was_down_is_of_the_plant() -> None:
    domain = PowerDomain.objects.create(
        site=Rack.objects.get(name="A01").site, name="feed-a", kind="feed", capacity_w=50_000
    )
    Rack.objects.filter(name="A01").update(feed_a=domain)
    snapshot.fresh()
    Incident.objects.create(
        title="feed-a is dark", group_key="a", rule="feed-dark", severity="critical",
        scope_kind="power_domain", scope_name="oslo/feed-a", opened_at=at(3.05),
    )  # fmt: skip
    end_job("llama", 3.0, "lost", why="n1: not heard for 60 s")
    end_job("other", 3.0, "lost", {"n2": [0]}, why="n2: not heard for 60 s")
    causes = {each["nodes"][0]: each["cause"] for each in ask()["failures"]}
    assert causes == {"n1": "plant", "n2": "unknown"}


def test_a_node_lost_as_its_gpus_were_too_hot_is_of_its_cooling() -> None:
    ThrottleEvent.objects.create(
        gpu=Gpu.objects.get(node__name="n1", index=1), cause=ThrottleCause.HW_THERMAL,
        opened_at=at(3.1), updated_at=at(3.01), severity=Severity.CRITICAL,
    )  # fmt: skip
    end_job("llama", 3.0, "lost", why="n1: not heard for 60 s")
    assert (only(ask())["cause"], only(ask())["component"]) == ("plant", "cooling")


@pytest.mark.parametrize(("owner", "count"), [("rule:gpu-errors", 1), ("user:ada", 0)])
def test_a_drain_is_a_failure_where_a_rule_asked_for_it_and_not_where_a_person_did(
    owner: str, count: int
) -> None:
    Restriction.objects.create(
        kind="drain", scope_kind="node", scope_name="n1", reason="errors", owner=owner, cause="x",
        state="in_force", issued_at=at(2.0), effect_at=at(2.0), expires_at=at(-2.0),
    )  # fmt: skip
    assert len(ask()["failures"]) == count


def test_a_node_that_fails_again_and_again_is_named_with_its_share() -> None:
    observe([make_node(f"m{number}", rack="B01") for number in range(20)])
    snapshot.fresh()
    for hours in range(8):
        xid("n1", 79, 2.0 + hours)
    xid("m3", 79, 4.0)
    lemons = ask()["lemons"]
    assert (lemons["nodes"], lemons["failures"]) == (["n1"], 8)
    assert lemons["share"] == pytest.approx(8 / 9)


def test_what_nobody_observed_has_no_rate() -> None:
    xid("n1", 79, 24.0 * 20)
    found = ask({"from": str(at(24 * 30).timestamp()), "to": str(at(24 * 15).timestamp())})
    assert (found["fleet"]["causes"]["hardware"], found["fleet"]["failures"]) == (1, 0)
    assert (found["fleet"]["device_h"], found["fleet"]["rate_per_h"]) == (0.0, None)
    assert found["fleet"]["rate_upper_per_h"] is None


def test_what_a_log_had_from_before_its_agent_was_enrolled_is_told_and_counts_for_no_rate() -> None:
    observe([make_node("new", rack="B01")], days=0.001)
    snapshot.fresh()
    for hours in range(6):
        xid("new", 79, 24.0 + hours)
    xid("n1", 79, 5.0)
    found = ask()
    assert (found["unobserved"], found["fleet"]["causes"]["hardware"]) == (6, 7)
    assert {each["nodes"][0]: each["observed"] for each in found["failures"]} == {
        "new": False, "n1": True,
    }  # fmt: skip
    assert (found["fleet"]["failures"], found["lemons"]["nodes"]) == (1, [])
    assert found["fleet"]["mtbf_h"] == pytest.approx(960.0, rel=1e-3)
    assert groups(found)["gpu"]["failures"] == 1
    by_rack = groups(ask({"by": "rack"}))
    assert (by_rack["oslo/B01"]["failures"], by_rack["oslo/B01"]["rate_per_h"]) == (0, 0.0)
    assert by_rack["oslo/B01"]["causes"]["hardware"] == 6


def test_a_node_that_fell_silent_as_it_failed_counts_with_what_ended_there() -> None:
    observe([Node.objects.get(name="n2")])
    Agent.objects.filter(name="agent-n1").update(last_seen_at=at(3.1))
    end_job("llama", 3.0, "lost", why="n1: not heard for 60 s")
    xid("n2", 79, 1.0)
    found = ask()
    assert (found["unobserved"], found["fleet"]["failures"]) == (0, 2)
    Agent.objects.filter(name="agent-n1").update(last_seen_at=at(5.0))
    assert ask()["unobserved"] == 1


def test_silences_of_agents_are_not_observed_and_what_failed_meanwhile_counts_for_no_rate() -> None:
    silent = Agent.objects.get(name="agent-n1")
    AgentSilence.objects.create(agent=silent, since=at(48.0), until=at(24.0))
    xid("n1", 79, 30.0)
    xid("n2", 79, 20.0)
    found = ask()
    assert found["fleet"]["device_h"] == pytest.approx(960.0 - 4 * 24.0, rel=1e-3)
    assert found["fleet"]["silent_h"] == pytest.approx(4 * 24.0, rel=1e-3)
    assert (found["unobserved"], found["fleet"]["failures"]) == (1, 1)
    assert groups(found)["node"]["silent_h"] == pytest.approx(2 * 24.0, rel=1e-3)
    assert groups(ask({"by": "rack"}))["oslo/A01"]["silent_h"] == pytest.approx(48.0, rel=1e-3)


def test_where_another_agent_tells_of_a_node_it_is_observed_while_one_is_silent() -> None:
    silent = Agent.objects.get(name="agent-n1")
    AgentSilence.objects.create(agent=silent, since=at(48.0), until=at(24.0))
    other, _ = make_agent("site-agent", nodes=[Node.objects.get(name="n1")])
    Agent.objects.filter(pk=other.pk).update(created_at=at(36.0), last_seen_at=at(0.0))
    by_rack = groups(ask({"by": "rack"}))
    assert by_rack["oslo/A01"]["device_h"] == pytest.approx(480.0 - 24.0, rel=1e-3)
    assert by_rack["oslo/A02"]["silent_h"] == pytest.approx(48.0, rel=1e-3)


def test_failures_outside_of_the_span_are_left_out() -> None:
    xid("n1", 79, 5.0)
    assert ask({"range": "1h"})["failures"] == []


def test_the_job_of_another_project_has_no_name_and_is_not_quoted() -> None:
    end_job(
        "secret-job", 3.0, "failed", project="sphinx", why="n1: secret-words",
        told=told("exception", "n1", "SecretError"),
    )  # fmt: skip
    assert only(ask())["jobs"] == ["secret-job/train/1"]
    failure = only(ask(role=Role.ML_USER))
    assert failure["jobs"] == ["a job of another project"]
    assert failure["evidence"][0]["text"] == "a job of another project ended"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"by": "color"}, "by"),
        ({"range": "soon"}, "range"),
        ({"from": "x"}, "from"),
        ({"kind": "gpu"}, "kind"),
    ],
)
def test_bad_parameters_are_refused_by_name(params: dict[str, str], field: str) -> None:
    answer = api_client(Role.OPERATOR).get(URL, params)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field


def test_it_is_for_those_who_see_the_fleet(client: Client) -> None:
    assert client.get(URL).status_code in (401, 403)
    assert client.get(URL, headers=bearer(make_token(make_user(Role.VIEWER)))).status_code == 200


def test_more_than_can_be_looked_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admission.failures.reading.MOST_RECORDS", 1)
    xid("n1", 79, 5.0)
    xid("n1", 79, 6.0)
    answer = api_client(Role.OPERATOR).get(URL)
    assert answer.status_code == 400
    assert "more than 1 Xid errors: ask for a shorter span" in answer.content.decode()
