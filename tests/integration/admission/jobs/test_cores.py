"""Phases that take CPU cores and no GPU: as the server checks, places and hands them out."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.utils import timezone

from accounts.roles import Role
from admission.executors.models import Gang
from admission.jobs.checks import problems_of
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Phase
from admission.jobs.resolution import Resolved, requests_of
from fleet import snapshot
from fleet.models import HardwareModel, Node
from headroom.contracts import HostColumns, NodeReport, TelemetryBatch
from headroom.jobs.reading import convert
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet, push, small_fleet
from tests.builders.jobs import make_project
from tests.integration.admission.cycle.conftest import clean_stores as clean_stores
from tests.integration.admission.cycle.scenes import cycle, machines_of
from tests.unit.headroom.jobs.specs import make_phase, make_spec


def resolved(**gang: Any) -> Resolved:
    spec = convert(make_spec(make_phase(gang={"gpus": 0, "cores": 4, **gang})))
    return Resolved(spec, SchedulingClass(name="plain"))


@pytest.fixture(autouse=True)
def fleet(clean_stores: None) -> SmallFleet:
    """A rack of a node with GPUs, and one with 32 cores and 128 GB."""
    made = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=1)
    model = HardwareModel.objects.create(
        name="EPYC", kind="node", rated_w=600, idle_w=120, cores=32, mem_bytes=128 * 10**9
    )
    node = Node.objects.get(name="bergen-a01-n2")
    node.gpus.all().delete()
    node.model = model
    node.save()
    return made


def at_rest(fleet: SmallFleet, power_w: float = 120.0) -> None:
    """Have all GPUs idle, and the node without any say what its host draws."""
    machines_of(fleet)
    fleet.report(only=["bergen-a01-n1"], power_w=70.0, util=0.0, temp_c=30.0)
    now = time.time()
    host = HostColumns(ts=[now], power_w=[power_w])
    batch = TelemetryBatch(
        agent=fleet.agent.name, boot_id="boot-2", seq=1, oldest_seq=1, sent_at=now,
        nodes=[NodeReport(node="bergen-a01-n2", host=host)],
    )  # fmt: skip
    push(fleet.agent, batch, received_at=now)


def test_cores_are_those_of_nodes_without_gpus() -> None:
    fleet = snapshot.fresh()
    row = fleet.nodes.index_by_name["bergen-a01-n2"]
    assert fleet.cores == {row: 32}


@pytest.mark.parametrize(
    ("gang", "code", "field", "hint"),
    [
        ({"cores": 33}, "too_many_cores", "cores", "at most 32"),
        ({"models": ["host"]}, "no_cores", "cores", "state `cores`"),
        ({"mem_bytes": 2e10}, "too_little_memory", "mem_bytes", "ask for 5 cores"),
        ({"mem_bytes": 2e11}, "too_little_memory", "mem_bytes", "ask for less"),
    ],
)
def test_what_no_node_can_give_is_refused_with_the_field_and_a_way_out(
    gang: dict[str, Any], code: str, field: str, hint: str
) -> None:
    (problem,) = problems_of(resolved(**gang), snapshot.fresh(), is_operator=False)
    assert (problem.code, problem.field) == (code, f"phases[0].gang.{field}")
    assert hint in problem.hint


def test_memory_that_comes_with_the_cores_is_fine() -> None:
    found = problems_of(resolved(mem_bytes=1.6e10), snapshot.fresh(), is_operator=False)
    assert found == []


def test_cores_count_for_no_gpu_of_a_quota() -> None:
    (request,) = requests_of(resolved(nodes=2), name="j", submitted_at=timezone.now())
    assert (request.gpus, request.gpus_per_node, request.cores) == (8, 4, True)
    assert request.counted(8) == 0.0


def test_phases_go_from_cores_to_gpus_each_where_it_belongs(fleet: SmallFleet) -> None:
    at_rest(fleet)
    make_project("vision")
    spec = make_spec(
        {**make_phase("prepare"), "gang": {"gpus": 0, "cores": 20}, "needs": []},
        {**make_phase("train"), "gang": {"gpus": 4}, "needs": ["prepare"]},
        name="pipeline",
    )
    operator = api_client(Role.OPERATOR)
    answer = operator.post("/api/v1/jobs", spec, content_type="application/json")
    assert answer.status_code == 201, answer.content
    cycle()
    prepare = operator.get("/api/v1/jobs/pipeline").json()["phases"][0]
    (attempt,) = prepare["attempts"]
    assert attempt["placement"]["nodes"] == ["bergen-a01-n2"]
    assert attempt["placement"]["gpus"] == {"bergen-a01-n2": []}
    assert attempt["placement"]["cores"] == {"bergen-a01-n2": list(range(20))}
    # Twenty of the 32 cores, with as large a part of the host's rest.
    assert attempt["placement"]["total_w"] == pytest.approx(20 / 32 * 600.0, abs=1.0)
    work = Gang.objects.get(key="pipeline/prepare/1").work
    assert work["cores"] == {"bergen-a01-n2": list(range(20))}
    assert work["cores_of"] == {"bergen-a01-n2": 32}
    assert phase_of_named("train").state == "waiting"


def phase_of_named(name: str) -> Phase:
    return Phase.objects.get(name=name)


def test_who_finds_no_core_is_told_so_in_cores(fleet: SmallFleet) -> None:
    at_rest(fleet)
    make_project("vision")
    operator = api_client(Role.OPERATOR)
    for number in range(2):
        phase = {**make_phase("prepare"), "gang": {"gpus": 0, "cores": 20}}
        spec = make_spec(phase, name=f"j{number}")
        answer = operator.post("/api/v1/jobs", spec, content_type="application/json")
        assert answer.status_code == 201, answer.content
    cycle()
    (phase,) = operator.get("/api/v1/jobs/j1/explain").json()["phases"]
    reason = phase["reasons"][0]
    assert (reason["token"], reason["unit"]) == ("GpuShortage", "cores")
    assert reason["sentence"] == "needs 20 cores, and 12 of 32 are free (20 held by jobs): short 8"
