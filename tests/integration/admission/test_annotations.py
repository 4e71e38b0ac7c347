"""What happened, as Graphite tells events, which Grafana reads: as far as its reader may know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from accounts.visibility import ANOTHER
from admission.annotations.api import moment_of
from fleet.models import Node
from policies.incidents.models import Incident
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.rollouts.following import ROLLOUTS
from policies.rollouts.models import RolloutEvent
from policies.scopes import Scope, ScopeKind
from telemetry.limits.models import LimitReport
from telemetry.models import Agent
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import small_fleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.policies import open_incident
from tests.builders.rollouts import DRIVER, make_held
from tests.integration.admission.cycle.scenes import restrict

pytestmark = pytest.mark.django_db
URL = "/api/v1/annotations/events/get_data"


def get(query: str, role: Role = Role.VIEWER, code: int = 200) -> Any:
    answer = Client().get(f"{URL}{query}", headers=bearer(make_token(make_user(role))))
    assert answer.status_code == code
    return answer.json()


@pytest.fixture
def eventful() -> Incident:
    """A resolved incident, a restriction in force, and a job that began ten minutes ago."""
    small_fleet(sites=("oslo",), racks_per_row=1, rows=("A",))
    incident = open_incident("rack oslo/A01")
    Incident.objects.filter(pk=incident.pk).update(state="resolved", resolved_at=timezone.now())
    restrict(RestrictionKind.DRAIN, Scope(ScopeKind.SITE, "oslo"))
    Restriction.objects.update(reason="as secret/train asked for")
    phase = make_job("secret", state="running").phases.get()
    make_attempt(phase, {"oslo-a01-n1": range(4)}, racks=["oslo/A01"])
    return incident


def test_beginnings_and_ends_are_told_in_graphites_form_the_newest_first(
    eventful: Incident,
) -> None:
    found = get("?from=-6h&until=now")
    kinds = [each["tags"][0] for each in found]
    assert sorted(kinds) == ["incident", "incident", "job", "restriction"]
    assert kinds[-1] == "job"
    assert [set(each) for each in found] == [{"when", "what", "tags", "data"}] * 4
    assert [each["when"] for each in found] == sorted((e["when"] for e in found), reverse=True)
    told = {each["what"]: each for each in found}
    assert told[f"{eventful.number} opened"]["tags"] == [
        "incident", eventful.severity, "oslo", "begin",
    ]  # fmt: skip
    assert told["secret/train/1 started"]["data"] == "4 GPUs at oslo"


def test_all_tags_have_to_be_there(eventful: Incident) -> None:
    assert len(get("?from=-6h&tags=incident")) == 2
    assert len(get("?from=-6h&tags=incident%20end")) == 1
    assert get("?from=-6h&tags=incident%20bergen") == []
    assert get("?from=-6h&tags=nothing") == []


def test_caps_of_the_controller_and_states_of_rollouts_are_told_with_tags_of_their_own(
    eventful: Incident,
) -> None:
    node = Node.objects.get(name="oslo-a01-n1")
    now = timezone.now()
    reports = [(0, "controller-1", "applied"), (1, "controller-1", "applied"),
               (2, "controller-1", "expired"), (3, "restriction-7", "applied")]  # fmt: skip
    for gpu, limit, state in reports:
        LimitReport.objects.create(
            agent=Agent.objects.get(), node=node, gpu_index=gpu, limit=limit, kind="power_cap_w",
            state=state, at=now.replace(microsecond=0), asked=500.0, received_at=now, boot_id="b",
            seq=1,
        )  # fmt: skip
    told = {each["what"]: each for each in get("?from=-1h&tags=cap")}
    assert told["controller capped 2 GPUs of node oslo-a01-n1"]["tags"] == ["cap", "oslo", "begin"]
    assert told["controller capped 2 GPUs of node oslo-a01-n1"]["data"] == "at 500 W"
    assert told["controller gave back 1 GPU of node oslo-a01-n1"]["tags"] == ["cap", "oslo", "end"]
    assert len(told) == 2  # the cap of a restriction is that restriction's
    run = make_held(put_in_force(ROLLOUTS, DRIVER))
    RolloutEvent.objects.create(run=run, at=now - timedelta(minutes=1), state="changing", step=0)
    found = get("?from=-1h&tags=rollout%20driver")
    assert [each["what"] for each in found] == [
        "rollout driver is held", "rollout driver is changing",
    ]  # fmt: skip
    assert found[0]["tags"] == ["rollout", "driver", "held", "begin"]
    assert found[1]["tags"] == ["rollout", "driver", "changing"]


def test_only_the_span_is_told(eventful: Incident) -> None:
    at = int((timezone.now() - timedelta(minutes=8)).timestamp())
    before = get(f"?from={at - 3600}&until={at}")
    assert [each["what"] for each in before] == ["secret/train/1 started"]
    assert get("?from=-5h&until=-4h") == []


def test_the_name_of_a_job_of_another_project_is_not_told(eventful: Incident) -> None:
    found = get("?from=-6h", Role.ML_USER)
    assert "secret" not in str(found)
    assert f"{ANOTHER} started" in [each["what"] for each in found]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("?from=yesterday", "Unix seconds"), ("?until=-6parsecs", "Unix seconds"),
        ("?from=-1h&until=-2h", "before until"), ("?from=-3y", "before until"),
        ("?from=-999999999y", "too long ago"), ("?since=1", "no such parameter"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_way_out(query: str, words: str) -> None:
    assert words in str(get(query, code=400))


def test_nobody_reads_it_without_a_token() -> None:
    assert Client().get(URL).status_code == 401


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("now", 0), ("-6h", 21_600), ("-5min", 300), ("now-2d", 172_800), ("-1mon", 2_592_000)],
)
def test_times_are_read_as_grafana_writes_them(text: str, seconds: int) -> None:
    now = datetime(2026, 11, 27, tzinfo=UTC)
    assert moment_of({"from": text}, "from", now, now) == now - timedelta(seconds=seconds)
    assert moment_of({"from": "1795737600"}, "from", now, now) == now
