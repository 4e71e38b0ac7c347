"""The server's side of schedulers that people have already, with one that is invented."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.test import Client as HttpClient
from django.utils import timezone

from accounts.roles import Role
from admission.cycle import accounting, live
from admission.executors.protocol import SignalKind
from admission.executors.registry import executor_of
from admission.executors.schedulers import news, registered
from admission.executors.schedulers.models import Lease, SchedulerJob
from admission.jobs.models import Attempt, Job, JobEvent, Phase, Project
from fleet import snapshot as inventory
from policies.restrictions.models import Restriction
from tests import loops
from tests.builders.accounts import api_client
from tests.builders.agents import make_agent
from tests.builders.fleet import SmallFleet
from tests.builders.schedulers import NAME, NODES, Invented

pytestmark = pytest.mark.django_db


@pytest.fixture
def invented(fleet: SmallFleet) -> Invented:
    registered.invalidate()
    return Invented(fleet, fleet.token)


def phase_of(ref: str) -> Phase:
    return Phase.objects.get(job__name=f"{NAME}-{ref}")


def test_a_held_job_becomes_one_of_ours_and_starts_when_it_is_admitted(invented: Invented) -> None:
    invented.submit("7", comment="headroom: peak_w=650 sing=loud")
    invented.round()
    job = Job.objects.get()
    assert (job.name, job.project.name, job.submitted_by) == (f"{NAME}-7", "vision", "ada")
    assert (job.job_class, job.spec["scheduler"]) == ("adopted", NAME)
    assert phase_of("7").request["gpu_peak_w"] == 650.0
    assert "'sing' is none of" in JobEvent.objects.get(kind="adopted").text
    invented.cycle()
    attempt = Attempt.objects.get()
    assert (attempt.executor, attempt.state) == (NAME, "running")
    assert invented.jobs["7"]["nodes"] == attempt.placement["nodes"]


def test_nothing_begins_before_it_was_let_go_by_a_clock_of_whole_seconds(
    invented: Invented,
) -> None:
    invented.submit("17")
    invented.tell()
    invented.cycle()
    begun_at = time.time() - 60.0
    (order,) = invented.tell()["jobs"]
    ran = {"state": "running", "lease": order["lease"], "nodes": order["nodes"]}
    invented.jobs["17"] |= {**ran, "started_at": begun_at}
    invented.tell()
    invented.jobs["17"] |= {"state": "ended", "ended_as": "succeeded", "ended_at": begun_at + 0.5}
    invented.tell()
    lease = Lease.objects.get()
    assert lease.released_at is not None
    assert lease.released_at == lease.started_at == lease.ended_at


def test_jobs_of_ours_stand_on_no_node_of_a_scheduler_and_the_other_way_round(
    invented: Invented,
) -> None:
    invented.tell(nodes=[{"node": node, "state": "up"} for node in NODES[:2]])
    invented.submit("7", gpus=12, nodes_wanted=3)
    invented.tell(nodes=None)
    invented.cycle()
    assert phase_of("7").reason == "LocalityUnsatisfiable"


def test_between_two_beats_a_job_is_adopted_let_go_begins_and_ends(invented: Invented) -> None:
    assert news.is_whole_due()
    invented.submit("7")
    invented.tell()
    invented.cycle(may_be_short=True)
    invented.obey()
    invented.tell()
    invented.cycle(may_be_short=True)
    assert phase_of("7").state == "running"
    invented.jobs["7"] |= {"state": "ended", "ended_as": "succeeded", "ended_at": time.time()}
    invented.tell()
    invented.cycle(may_be_short=True)
    assert Job.objects.get().state == "succeeded"


def test_orders_are_given_until_the_scheduler_shows_that_they_were_done(invented: Invented) -> None:
    invented.submit("7")
    invented.tell()
    invented.cycle()
    first, second = (invented.tell()["jobs"] for _ in range(2))
    assert first == second
    assert first[0]["wanted"] == "run"
    invented.obey()
    assert "jobs" not in invented.tell()


def test_what_the_scheduler_puts_back_by_itself_is_lost_and_waits_again(invented: Invented) -> None:
    invented.submit("7")
    invented.round()
    invented.cycle()
    invented.jobs["7"] |= {"state": "held", "restarts": 1, "lease": "", "nodes": [], "why": "n1"}
    invented.tell()
    invented.cycle()
    assert Attempt.objects.order_by("number").first().outcome == "lost"  # type: ignore[union-attr]
    invented.round()
    assert Attempt.objects.count() == 2


def test_who_has_to_give_way_is_evicted_and_waits_again(invented: Invented) -> None:
    invented.submit("7")
    invented.round()
    invented.cycle()
    attempt = Attempt.objects.get()
    Attempt.objects.update(outcome="preempted")
    executor_of(NAME).signal(attempt.key, SignalKind.STOP, time.time(), why="the feed is full")
    assert [order["wanted"] for order in invented.obey()] == ["evict"]
    invented.tell()
    invented.cycle()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.outcome) == ("ended", "preempted")
    assert phase_of("7").state in ("queued", "starting")


def test_who_gives_way_counts_until_its_nodes_have_let_go_of_it(invented: Invented) -> None:
    invented.submit("7")
    invented.round()
    invented.cycle()
    attempt = Attempt.objects.get()
    Attempt.objects.update(outcome="preempted")
    executor_of(NAME).signal(attempt.key, SignalKind.STOP, time.time(), why="the feed is full")
    invented.obey()
    # As Slurm tells it: put back already, with a start of its own, while the epilog still runs.
    waits = dict(invented.jobs["7"])
    invented.jobs["7"] |= {
        "state": "ending",
        "nodes": attempt.placement["nodes"],
        "started_at": time.time(),
    }
    for _ in range(2):
        invented.tell()
        invented.cycle()
        attempt.refresh_from_db()
        assert (attempt.state, Attempt.objects.count()) == ("running", 1)
    # And as submitted when they have.
    invented.jobs["7"] = waits | {"submitted_at": waits["submitted_at"] + 12.0}
    invented.tell()
    invented.cycle()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.outcome) == ("ended", "preempted")
    assert Job.objects.get().state == "running"
    assert phase_of("7").state in ("queued", "starting")


def test_what_is_found_as_it_ends_and_is_put_back_waits(invented: Invented) -> None:
    invented.submit("6", state="ending", nodes=NODES[:1], started_at=time.time())
    invented.tell()
    invented.cycle()
    assert not Attempt.objects.exists()
    assert phase_of("6").hold_reason == "it is about to end there"
    invented.jobs["6"] |= {"state": "held", "nodes": [], "started_at": None}
    invented.tell()
    invented.cycle()
    assert phase_of("6").state == "starting"


def test_what_runs_without_a_lease_is_counted_before_anything_is_given_away(
    invented: Invented,
) -> None:
    runs = {"state": "running", "nodes": NODES, "started_at": time.time() - 500}
    invented.submit("6", gpus=16, nodes_wanted=4, **runs)
    invented.submit("7")
    invented.tell()
    invented.cycle()
    attempt = Attempt.objects.get()
    assert (attempt.state, attempt.phase.job.name) == ("running", f"{NAME}-6")
    assert attempt.placement["total_w"] > 4 * 4 * 700.0
    assert phase_of("7").state == "queued"
    assert Lease.objects.get().started_at is not None


def test_a_job_that_is_over_there_is_over_here(invented: Invented) -> None:
    for ref in ("1", "2", "3"):
        invented.submit(ref)
    invented.submit("4", gpus=64, nodes_wanted=16)
    invented.round()
    invented.cycle()
    ends = [("1", "succeeded"), ("2", "failed"), ("3", "cancelled"), ("4", "cancelled")]
    for ref, end in ends:
        invented.jobs[ref] |= {"state": "ended", "ended_as": end, "ended_at": time.time()}
    invented.tell()
    for _ in range(3):
        invented.cycle()
    assert [phase_of(ref).state for ref, _ in ends] == [end for _, end in ends]
    assert not SchedulerJob.objects.filter(is_settled=False).exists()


def test_a_job_that_waits_for_something_there_is_held_here_until_it_has_come(
    invented: Invented,
) -> None:
    invented.submit("7", state="blocked", why="it waits for afterok:6")
    invented.tell()
    invented.cycle()
    phase = phase_of("7")
    assert (phase.held_by, phase.hold_reason) == ("its scheduler", "it waits for afterok:6")
    invented.jobs["7"]["state"] = "held"
    invented.tell()
    invented.cycle()
    assert phase_of("7").held_by == ""


def test_a_ref_that_is_used_again_is_another_job(invented: Invented) -> None:
    invented.submit("7")
    invented.tell()
    invented.cycle()
    invented.submit("7", submitted_at=time.time() + 5)
    invented.tell()
    for _ in range(3):
        invented.cycle()
    assert sorted(Job.objects.values_list("state", flat=True)) == ["cancelled", "running"]


def test_a_bridge_that_begins_anew_is_asked_for_all_there_is(invented: Invented) -> None:
    invented.submit("7")
    invented.tell()
    invented.session = "s2"
    assert invented.tell()["resync"] is True
    assert "resync" not in invented.tell(complete=True)


def test_what_a_complete_report_does_not_have_is_gone(invented: Invented) -> None:
    invented.submit("7")
    invented.tell()
    invented.cycle()
    invented.tell(complete=True, jobs=[])
    invented.cycle()
    assert Job.objects.get().state == "cancelled"


def test_no_node_gets_jobs_of_a_scheduler_that_is_silent_or_has_drained_it(
    invented: Invented,
) -> None:
    invented.nodes[NODES[0]] = {"state": "drained", "reason": "gpu 3", "drained_by": "root"}
    invented.tell()
    now = time.time()
    assert len(registered.ready_nodes(now)) == 3
    assert not registered.ready_nodes(now + 60)


def test_what_a_restriction_drains_is_drained_there_and_comes_back_as_it_ends(
    invented: Invented,
) -> None:
    operator = api_client(Role.OPERATOR)
    given = {"kind": "drain", "scope": {"kind": "node", "name": NODES[0]}, "for_s": 600,
             "reason": "inlet 38 °C"}  # fmt: skip
    invented.tell()
    made = operator.post("/api/v1/restrictions", given, content_type="application/json").json()
    invented.cycle()
    (order,) = invented.tell()["nodes"]
    assert order["node"] == NODES[0]
    assert order["reason"] == f"inlet 38 °C (restriction {made['id']})"
    drained = {"state": "drained", "reason": order["reason"], "drained_by": "slurm"}
    invented.nodes[NODES[0]] = {**drained, "is_ours": True}
    assert "nodes" not in invented.tell()
    path = f"/api/v1/restrictions/{made['id']}/lift"
    lifted = operator.post(path, {"reason": "cool again"}, content_type="application/json")
    assert lifted.status_code == 200, lifted.content
    invented.cycle()
    assert invented.tell()["nodes"] == [{"node": NODES[0]}]


def test_what_others_drain_there_is_a_restriction_of_theirs_and_not_undone_by_us(
    invented: Invented,
) -> None:
    invented.nodes[NODES[0]] = {"state": "drained", "reason": "gpu 3", "drained_by": "ada"}
    invented.tell()
    for _ in range(2):
        invented.cycle()
    (row,) = Restriction.objects.live()
    assert (row.owner, row.reason) == (f"scheduler:{NAME}", f"drained in {NAME} by ada: gpu 3")
    assert "nodes" not in invented.tell()
    del invented.nodes[NODES[0]]
    invented.tell()
    invented.cycle()
    assert not Restriction.objects.live().exists()


def test_another_agent_does_not_speak_for_a_scheduler_nor_for_its_nodes(invented: Invented) -> None:
    invented.tell()
    _, token = make_agent("other")
    invented.token = token
    answer = invented.post()
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "scheduler_out_of_scope"
    client = HttpClient(headers={"Authorization": f"Bearer {token}"})
    body = {"kind": "slurm", "session": "x", "complete": True,
            "nodes": [{"node": NODES[0], "state": "up"}]}  # fmt: skip
    answer = client.post("/api/v1/schedulers/mine", body, content_type="application/json")
    assert answer.json()["error"]["code"] == "node_out_of_scope"
    assert not registered.executor_by_node().keys() - set(registered.ready_nodes(time.time()))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"jobs": [{"ref": "a b", "state": "held", "submitted_at": 1}]}, "jobs[0].ref"),
        ({"jobs": [{"ref": "1", "state": "lazy", "submitted_at": 1}]}, "jobs[0].state"),
        ({"session": ""}, "session"),
        ({"kind": "pbs"}, "kind"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    invented: Invented, given: dict[str, Any], field: str
) -> None:
    answer = invented.post(**given)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == field


@pytest.mark.parametrize("name", ["local", "twin", "Hall", "a" * 21])
def test_a_bad_name_is_refused(invented: Invented, name: str) -> None:
    client = HttpClient(headers={"Authorization": f"Bearer {invented.token}"})
    body = {"kind": "slurm", "session": "x", "complete": True}
    answer = client.post(f"/api/v1/schedulers/{name}", body, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_name")


def test_a_project_that_there_is_keeps_its_terms(invented: Invented) -> None:
    Project.objects.create(name="vision", weight=3.0)
    invented.submit("7")
    invented.submit("8", account="")
    invented.tell()
    invented.cycle()
    assert Project.objects.get(name="vision").weight == 3.0
    assert Job.objects.get(name=f"{NAME}-8").project.name == NAME


def test_what_a_job_asks_for_later_is_what_it_is_given(
    invented: Invented, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = time.time() - 60
    invented.submit("7", state="blocked", only_nodes=NODES[:1], submitted_at=at)
    invented.tell()
    invented.cycle()
    wanted = {"only_nodes": NODES[2:3], "gpus": 2, "gpus_per_node": 2, "priority": 2000}
    invented.submit("7", submitted_at=at, **wanted)
    invented.tell()
    # All is one transaction here, and it is by transactions that rows are known to have changed.
    monkeypatch.setattr(live, "_requests", live._Requests())
    invented.cycle()
    job = Job.objects.get()
    assert (job.priority, phase_of("7").gpus) == (100, 2)
    assert Attempt.objects.get().placement["nodes"] == NODES[2:3]


def test_a_bridge_is_told_how_long_jobs_wait_and_again_when_it_begins_anew(
    invented: Invented,
) -> None:
    invented.submit("7", gpus=64, nodes_wanted=16)
    invented.tell()
    for _ in range(2):
        invented.cycle()
    told = invented.tell()
    assert set(told["waits"]) == set(told["comments"]) == {"7"}
    invented.tell(commented=["7"])
    assert "comments" not in invented.tell()
    invented.session = "s2"
    assert set(invented.tell(complete=True)["comments"]) == {"7"}


def test_no_job_is_asked_to_stand_still_where_its_scheduler_cannot_have_it_do_so(
    invented: Invented,
) -> None:
    invented.kind = "kueue"
    invented.submit("7", comment="headroom: responses=shrink-batch,pause")
    invented.submit("8", comment="headroom: responses=pause")
    invented.tell()
    invented.cycle()
    asked = [phase_of(ref).job.spec["phases"][0]["throttling"]["responses"] for ref in ("7", "8")]
    assert asked == [["shrink-batch"], ["continue"]]


def test_where_labels_of_nodes_disagree_with_the_inventory_is_said_and_not_taken(
    invented: Invented,
) -> None:
    rack = invented.fleet.nodes[NODES[0]].rack
    invented.nodes[NODES[0]] = {"rack": rack.name.lower(), "feed_a": "elsewhere"}
    invented.nodes[NODES[1]] = {"rack": f"bergen.{rack.name}", "zone": "row-z"}
    first, second = invented.tell()["disagreements"]
    assert first.startswith(f"{NODES[0]}: its labels say feed A elsewhere, the inventory says ")
    assert second.startswith(f"{NODES[1]}: its labels say cooling zone row-z, the inventory says ")
    rack.refresh_from_db()
    assert invented.fleet.nodes[NODES[0]].rack == rack
    assert "disagreements" not in invented.tell(nodes=None)


def test_who_comes_new_has_a_cycle_begin_at_once(
    invented: Invented, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(current_app, "send_task", asked.append)
    with django_capture_on_commit_callbacks(execute=True):
        invented.submit("7")
        invented.tell()
    with django_capture_on_commit_callbacks(execute=True):
        invented.submit("8")
        invented.tell()
    # One that has not begun sees both.
    assert asked == ["admission.tasks.cycle"]
    assert news.is_cycle_asked()
    invented.cycle()
    assert not news.is_cycle_asked()
    with django_capture_on_commit_callbacks(execute=True):
        invented.tell()
    assert not news.is_cycle_asked()


def test_a_bridge_that_waits_hears_of_orders_and_of_none_twice(
    invented: Invented, django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "WAIT_S", 0.1)

    async def heard(after: str) -> str:
        orders = news.OrderNews()
        try:
            return await orders.wait(NAME, after)
        finally:
            await orders.close()

    before = loops.run(heard("0"))
    invented.submit("7")
    invented.tell()
    with django_capture_on_commit_callbacks(execute=True):
        invented.cycle()
    now = loops.run(heard(before))
    assert now != before
    assert loops.run(heard(now)) == now


def test_owners_of_running_jobs_read_what_these_have_used_from_time_to_time(
    invented: Invented,
) -> None:
    invented.submit("7")
    invented.round()
    invented.cycle()
    assert accounting.account(time.time()) == 0
    began = timezone.now() - timedelta(minutes=20)
    Attempt.objects.update(started_at=began)
    SchedulerJob.objects.update(commented_at=began)
    for minutes in (2, 1, 0):
        invented.fleet.report(power_w=500.0, at=time.time() - 60.0 * minutes)
    now = time.time()
    assert accounting.account(now) == 1
    said = invented.tell()["comments"]["7"]
    (node,) = invented.jobs["7"]["nodes"]
    used = r"its GPUs have used 0\.0\d+ kWh in 20 min, \d+ % of that read"
    assert re.fullmatch(f"admitted on {node}; {used}", said)
    assert accounting.account(now) == 0
    assert accounting.account(now + 599.0) == 0
    assert accounting.account(now + 601.0) == 1


# --- Slices ---------------------------------------------------------------------------------------

_HALVES = ["3g.40gb", "3g.40gb"]


def split(invented: Invented, node: str) -> None:
    """State the first GPU of a node as two halves, and have NVML show them."""
    gpu = invented.fleet.gpu(node)
    gpu.model.name = "NVIDIA H100 80GB HBM3"
    gpu.model.save()
    gpu.slices = _HALVES
    gpu.save()
    inventory.invalidate()
    invented.mig = (node, 0)


def test_who_runs_on_a_slice_there_is_counted_on_one_that_nobody_has(invented: Invented) -> None:
    split(invented, NODES[0])
    for ref in ("1", "2"):
        invented.submit(
            ref, state="running", nodes=[NODES[0]], gpus=1, gpus_per_node=1, model="h100_3g.40gb",
            started_at=time.time() - 30,
        )  # fmt: skip
    invented.tell()
    invented.cycle()
    found = {row.phase.job.name: row.placement for row in Attempt.objects.all()}
    places = [each["slices"][NODES[0]] for each in found.values()]
    assert sorted(each["place"] for (each,) in places) == [0, 1]
    assert phase_of("1").request["slice"] == "3g.40gb"
    # A half each: no more than the GPU by itself.
    whole_w = 700.0 * 2
    assert sum(each["total_w"] for each in found.values()) < whole_w


def test_a_slice_that_waits_there_is_let_go_onto_the_node_that_has_it(invented: Invented) -> None:
    split(invented, NODES[1])
    invented.submit("9", gpus=1, gpus_per_node=1, model="3g.40gb")
    invented.round()
    invented.cycle()
    assert invented.jobs["9"]["nodes"] == [NODES[1]]
