"""Jobs of a cluster with Kueue: held, explained, admitted, evicted, ended; nobody runs twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

import pytest

from accounts.models import User
from accounts.roles import Role
from admission.directives import actions as directives
from admission.executors.protocol import SignalKind
from admission.executors.registry import executor_of
from admission.executors.schedulers import registered
from admission.jobs.models import JobEvent, Phase
from headroom.kueue import names
from headroom.kueue.api import Api
from headroom.kueue.bridge import let_all_go
from policies.restrictions import actions
from policies.restrictions.models import Restriction
from telemetry import stream
from tests.builders.accounts import api_client, make_user
from tests.builders.begun import begin_anew
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.policies import lower_budget
from tests.kubernetes import objects
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import CHECK, NAME, TEAM, Site, eventually, made

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def nothing_in_valkey() -> None:
    """No file finds in Valkey what another left."""
    stream.connection().flushall()


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    found = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=2)
    begin_anew()
    return found


@pytest.fixture
def site(fleet: SmallFleet, api_server: ApiServer) -> Iterator[Site]:
    with made(fleet, api_server) as found:
        found.begin()
        yield found
    registered.invalidate()


def _operator() -> User:
    return User.objects.filter(username="olga").first() or make_user(Role.OPERATOR, username="olga")


def _drain(node: str) -> int:
    """Take a node out of use; return the number of the restriction."""
    given = {"kind": "drain", "scope": {"kind": "node", "name": node}, "for_s": 600,
             "reason": "inlet 38 °C"}  # fmt: skip
    client = api_client(Role.OPERATOR)
    made = client.post("/api/v1/restrictions", given, content_type="application/json").json()
    return int(made["id"])


def _is_cordoned(site: Site, node: str) -> bool:
    return bool(site.client.get("Node", node).get("spec", {}).get("unschedulable"))


def _close() -> None:
    """Leave no power for anything new."""
    lower_budget("site", "bergen", 6_000.0)


def test_a_job_waits_for_quota_and_for_us_runs_where_it_was_placed_and_ends(site: Site) -> None:
    name = site.submit("train", annotations={"tests/run-s": "3"})
    site.until(lambda: site.nodes_of(name))
    (attempt,) = site.attempts(name)
    assert attempt.executor == NAME
    assert site.nodes_of(name) == set(attempt.placement["nodes"])
    (pod,) = site.pods(name)
    assert pod["metadata"]["annotations"][names.LEASE] == attempt.key
    assert "admitted under the lease" in site.check(name)["message"]
    site.until(lambda: site.job(name).state == "succeeded")
    (attempt,) = site.attempts(name)
    assert (attempt.outcome, attempt.exit_code) == ("succeeded", 0)
    events = JobEvent.objects.filter(job=site.job(name)).exclude(kind="reason")
    assert list(events.values_list("kind", flat=True)) == [
        "adopted",
        "dispatched",
        "started",
        "ended",
        "ended",
    ]


def test_a_gang_stands_on_the_nodes_of_its_lease_and_leaves_no_label_behind(site: Site) -> None:
    name = site.submit("gang", pods=2, annotations={"tests/run-s": "3"})
    site.until(lambda: len(site.nodes_of(name)) == 2)
    (attempt,) = site.attempts(name)
    assert site.nodes_of(name) == set(attempt.placement["nodes"])
    label = names.lease_label(attempt.key)
    labelled = site.client.list("Node", labelSelector=label)["items"]
    assert {node["metadata"]["name"] for node in labelled} == site.nodes_of(name)
    site.until(lambda: site.job(name).state == "succeeded")
    site.until(lambda: not site.client.list("Node", labelSelector=label)["items"])


def test_who_waits_reads_need_have_short_where_and_when(site: Site) -> None:
    _close()
    site.choose(giveBack={"enabled": False})
    name = site.submit("train", annotations={"headroom.dev/peak-w": "lots"})
    site.until(lambda: "PowerHeadroom" in site.check(name).get("message", ""))
    message = site.check(name)["message"]
    assert site.check(name)["state"] == "Pending"
    for part in ("needs ", "which has ", "short ", "bergen", "position 1 in the queue"):
        assert part in message
    assert "of its annotations was left out: peak_w is a number, not 'lots'" in message
    told = site.phase(name).reason
    assert message.startswith(f"{told}: ")


@pytest.mark.slow(beside="tests/kubernetes/test_kueue.py::test_a_retry_gives_quota_to_who_waits")
def test_a_gang_that_waits_for_watts_gives_its_quota_back_and_comes_again(site: Site) -> None:
    # One of the two may be at work.
    lower_budget("site", "bergen", 12_000.0)
    site.choose(giveBack={"afterSeconds": 4, "leastSeconds": 1, "mostSeconds": 2})
    first = site.submit("first", pods=2)
    site.until(lambda: len(site.nodes_of(first)) == 2)
    name = site.submit("gang", pods=2)
    held_for: list[Phase | None] = []

    def gives_back_again() -> bool:
        held_for.append(Phase.objects.filter(job__name=site.ours(name)).first())
        return bool(site.check(name).get("retryCount", 0) > 1)

    site.until(lambda: site.has_workload(name))
    site.until(gives_back_again, within_s=60)
    message = site.condition(name, "Evicted")["message"]
    assert "AdmissionCheck in Retry state" in message
    assert ": needs " in message
    assert any("it has given its quota back" in each.hold_reason for each in held_for if each)
    site.finish(first)
    site.until(lambda: len(site.nodes_of(name)) == 2)
    assert len(site.attempts(name)) == 1


def test_who_can_never_start_is_rejected_and_told_why(site: Site) -> None:
    name = site.submit("huge", pods=16)
    site.until(lambda: site.workload(name)["spec"].get("active") is False)
    # Kueue evicts what is not active in a step of its own.
    site.until(
        lambda: "never starts as it is" in site.condition(name, "Evicted").get("message", "")
    )
    site.round()
    assert site.phase(name).held_by == "its scheduler"


def test_who_has_to_give_way_is_evicted_with_the_reason_and_admitted_under_another_lease(
    site: Site,
) -> None:
    name = site.submit("train")
    site.until(lambda: site.phase(name).state == "running" and site.pods(name))
    (attempt,) = site.attempts(name)
    before = site.pods(name)[0]["metadata"]["uid"]
    directives.preempt([attempt.key], for_key="x/y", why="the feed is full", now=datetime.now(UTC))
    site.until(lambda: len(site.attempts(name)) == 2)
    assert "the feed is full" in site.condition(name, "Evicted")["message"]
    site.until(lambda: site.phase(name).state == "running" and site.nodes_of(name))
    first, second = site.attempts(name)
    assert (first.outcome, second.outcome) == ("preempted", "")
    (pod,) = site.pods(name)
    assert pod["metadata"]["annotations"][names.LEASE] == second.key
    assert pod["metadata"]["uid"] != before
    assert first.ended_at is not None
    assert second.started_at is not None
    assert first.ended_at <= second.started_at


def test_directives_reach_pods_that_run(site: Site) -> None:
    name = site.submit("train")
    site.until(lambda: site.phase(name).state == "running" and site.nodes_of(name))
    (attempt,) = site.attempts(name)
    executor_of(NAME).signal(attempt.key, SignalKind.SET_BATCH_SCALE, time.time(), value=0.5)
    site.step()
    (pod,) = site.pods(name)
    assert '"batch_scale":0.5' in pod["metadata"]["annotations"][names.DIRECTIVES]
    site.until(lambda: executor_of(NAME).status([attempt.key])[0].signals_seen == 1)


def test_what_a_restriction_drains_is_cordoned_and_tainted_and_comes_back(site: Site) -> None:
    node = next(iter(site.fleet.nodes))
    site.round()
    made = _drain(node)
    site.until(lambda: _is_cordoned(site, node))
    found = site.client.get("Node", node)
    assert found["metadata"]["annotations"][names.RESTRICTED].startswith("inlet 38 °C")
    assert names.RESTRICTED in {taint["key"] for taint in found["spec"]["taints"]}
    actions.lift(_operator(), made, why="cool again", now=datetime.now(UTC))
    site.until(lambda: not _is_cordoned(site, node))
    found = site.client.get("Node", node)
    assert names.RESTRICTED not in {
        taint["key"] for taint in found.get("spec", {}).get("taints", ())
    }
    assert names.RESTRICTED not in found["metadata"].get("annotations", {})


def test_what_others_cordon_is_a_restriction_of_theirs_and_not_undone(site: Site) -> None:
    node = next(iter(site.fleet.nodes))
    patch = {"spec": {"unschedulable": True}}
    site.client.patch("Node", node, patch, fieldManager="kubectl-cordon")
    site.until(lambda: Restriction.objects.live().exists())
    (row,) = Restriction.objects.live()
    assert row.reason == f"drained in {NAME} by kubectl-cordon: cordoned"
    site.client.patch("Node", node, {"spec": {"unschedulable": False}})
    site.until(lambda: not Restriction.objects.live().exists())


def test_pods_past_kueue_are_counted_with_their_owner(site: Site) -> None:
    node = next(iter(site.fleet.nodes))
    pod = objects.make_pod(TEAM, "notebook", gpus=4, nodeName=node)
    pod["metadata"]["labels"] = {"headroom.dev/user": "ada"}
    site.client.create(pod)
    site.until(lambda: JobEvent.objects.filter(kind="found").exists())
    job = JobEvent.objects.get(kind="found").job
    assert (job.submitted_by, job.project.name) == ("ada", TEAM)
    assert job.phases.get().attempts.get().placement["nodes"] == [node]


def test_where_labels_say_otherwise_than_the_inventory_is_said(site: Site) -> None:
    node = next(iter(site.fleet.nodes))
    site.client.patch("Node", node, {"metadata": {"labels": {"rack": "B99"}}})
    site.choose(topology={"rack": "rack"})

    def agrees() -> dict[str, str]:
        status = site.client.get("HeadroomCheck", CHECK).get("status", {})
        return next(iter(status.get("conditions", ())), {})

    site.until(lambda: agrees().get("status") == "False")
    assert agrees()["message"].startswith(f"{node}: its labels say rack B99, the inventory says ")


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_schedulers.py::"
    "test_who_gives_way_counts_until_its_nodes_have_let_go_of_it"
)
def test_what_is_evicted_keeps_its_place_until_its_pods_are_gone(site: Site) -> None:
    # One of the two may be at work.
    lower_budget("site", "bergen", 11_800.0)
    site.choose(giveBack={"enabled": False})
    # Of a class that no cycle asks to give way.
    slow = {"tests/ends-s": "2", "headroom.dev/class": "adopted-once"}
    first = site.submit("first", pods=2, annotations=slow)
    site.until(lambda: len(site.nodes_of(first)) == 2)
    later = site.submit("later", pods=2, labels={"tests/priority": "5"})
    site.until(lambda: "short " in site.check(later).get("message", ""))
    (attempt,) = site.attempts(first)
    site.kueue.is_busy.set()
    directives.preempt([attempt.key], for_key="x/y", why="the feed is full", now=datetime.now(UTC))
    site.until(lambda: site.check(first)["state"] == "Retry")
    for _ in range(5):
        site.round()
    assert len(site.nodes_of(first)) == 2
    assert site.check(later)["state"] == "Pending"
    site.kueue.is_busy.clear()
    ending: list[bool] = []

    def begins() -> bool:
        is_admitted = site.check(later)["state"] == "Ready"
        ending.append(site.holds(first, "Evicted") and bool(site.pods(first)))
        assert not (is_admitted and site.pods(first))
        return len(site.nodes_of(later)) == 2

    site.until(begins)
    assert any(ending)
    attempt.refresh_from_db()
    (other,) = site.attempts(later)
    assert (attempt.outcome, other.outcome) == ("preempted", "")
    assert attempt.ended_at is not None
    assert attempt.ended_at <= other.dispatched_at


# --- Nodes that are odd, or go -------------------------------------------------------------------


def test_nodes_without_labels_get_jobs_and_keep_no_label_of_them(site: Site) -> None:
    bare = {"metadata": {"labels": None}}
    for name in site.fleet.nodes:
        site.client.patch("Node", name, bare)
    one = site.submit("one", annotations={"tests/run-s": "2"})
    gang = site.submit("gang", pods=2, annotations={"tests/run-s": "2"})
    site.until(lambda: site.nodes_of(one) and len(site.nodes_of(gang)) == 2)
    for name in (one, gang):
        (attempt,) = site.attempts(name)
        assert site.nodes_of(name) == set(attempt.placement["nodes"])
    site.until(lambda: {site.job(name).state for name in (one, gang)} == {"succeeded"})
    site.until(
        lambda: (
            not any(node["metadata"].get("labels") for node in site.client.list("Node")["items"])
        )
    )


def test_jobs_stand_on_nodes_of_the_flavor_that_kueue_chose(site: Site) -> None:
    nodes = sorted(site.fleet.nodes)
    taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
    for name, kind in zip(nodes, "aabb", strict=True):
        taints = [taint] if kind == "b" else None
        patch = {"metadata": {"labels": {"kind": kind}}, "spec": {"taints": taints}}
        site.client.patch("Node", name, patch)
    tolerates = [{"key": "team", "operator": "Equal", "value": "b"}]
    site.client.create(objects.make_flavor("b", nodeLabels={"kind": "b"}, tolerations=tolerates))
    site.client.patch("ResourceFlavor", "h200", {"spec": {"nodeLabels": {"kind": "a"}}})
    flavors = [
        {"name": name, "resources": [{"name": objects.GPU, "nominalQuota": "8"}]}
        for name in ("h200", "b")
    ]
    groups = [{"coveredResources": [objects.GPU], "flavors": flavors}]
    site.client.patch("ClusterQueue", "gpus", {"spec": {"resourceGroups": groups}})
    # The first fills the quota of one flavor, so that the second gets the other.
    small = {"headroom.dev/peak-w": "200"}
    names_of_jobs = [site.submit(f"gang-{each}", pods=2, annotations=small) for each in "ab"]
    site.until(lambda: all(len(site.nodes_of(name)) == 2 for name in names_of_jobs))
    assert [site.nodes_of(name) for name in names_of_jobs] == [set(nodes[:2]), set(nodes[2:])]
    waits = site.submit("waits", pods=2, annotations=small)
    site.until(lambda: site.has_workload(waits) and site.phase(waits).held_by == "its scheduler")
    site.finish(names_of_jobs[1])
    site.until(lambda: site.nodes_of(waits) == set(nodes[2:]))


def test_a_job_whose_node_goes_is_placed_anew_under_another_lease(site: Site) -> None:
    name = site.submit("train")
    site.until(lambda: site.phase(name).state == "running" and site.nodes_of(name))
    (first,) = site.attempts(name)
    (node,) = site.nodes_of(name)
    site.client.delete("Node", node)
    # Kubernetes drops pods of nodes that there are not.
    for pod in site.pods(name):
        site.client.delete("Pod", pod["metadata"]["name"], TEAM, gracePeriodSeconds=0)
    site.until(lambda: len(site.attempts(name)) == 2 and site.nodes_of(name))
    assert site.nodes_of(name) != {node}
    first.refresh_from_db()
    assert first.outcome == "lost"
    why = "it is placed anew: of the nodes that it was placed on 0 are left, with 0 GPUs of 4"
    assert why in site.condition(name, "Evicted")["message"]


def test_a_job_is_not_given_to_a_node_that_went_before_it_began(site: Site) -> None:
    site.round()
    node, *others = sorted(site.fleet.nodes)
    site.client.delete("Node", node)
    name = site.submit("gang", pods=len(others))
    site.until(lambda: len(site.nodes_of(name)) == len(others))
    assert site.nodes_of(name) == set(others)


# --- Away, wrong, begun anew, and let go ---------------------------------------------------------


def _active(site: Site) -> tuple[str, str]:
    conditions = site.client.get("AdmissionCheck", CHECK).get("status", {}).get("conditions", ())
    found: dict[str, str] = next((each for each in conditions if each["type"] == "Active"), {})
    return found.get("status", ""), found.get("reason", "")


def test_the_check_says_that_headroom_is_away_and_new_jobs_wait_where_that_was_chosen(
    site: Site,
) -> None:
    site.choose(awaySeconds=1)
    site.until(lambda: _active(site) == ("True", "Active"))
    site.server.is_away = True
    name = site.submit("train")
    site.sees(lambda: _active(site) == ("False", "HeadroomAway"))
    assert not site.nodes_of(name)
    site.server.is_away = False
    site.until(lambda: site.nodes_of(name))
    assert _active(site) == ("True", "Active")


def test_new_jobs_start_without_headroom_where_that_was_chosen(site: Site) -> None:
    site.choose(awaySeconds=1, whenAway="Open")
    site.until(lambda: _active(site) == ("True", "Active"))
    site.server.is_away = True
    name = site.submit("train")
    site.sees(lambda: site.nodes_of(name))
    assert _active(site) == ("True", "Active")
    site.server.is_away = False
    site.until(lambda: site.has_workload(name) and site.phase(name).state == "running")
    assert JobEvent.objects.filter(job=site.job(name), kind="found").exists()


def test_wrong_parameters_are_said_and_nothing_is_admitted(site: Site) -> None:
    site.until(lambda: _active(site) == ("True", "Active"))
    site.client.delete("HeadroomCheck", CHECK)
    site.until(lambda: _active(site) == ("False", "BadParameters"))
    name = site.submit("train")
    for _ in range(5):
        site.round()
    assert not site.nodes_of(name)


def test_the_leader_is_replaced_when_it_is_killed_and_nobody_runs_twice(site: Site) -> None:
    running = site.submit("train")
    site.until(lambda: site.nodes_of(running))
    uid = site.pods(running)[0]["metadata"]["uid"]
    site.begin()
    assert [bridge._leader.look() for bridge in site.bridges] == [True, False]
    site.kill(site.bridge)
    later = site.submit("later")
    site.until(lambda: site.nodes_of(later))
    assert site.bridge._leader.leads
    assert site.pods(running)[0]["metadata"]["uid"] == uid
    assert len(site.attempts(running)) == 1


def test_a_bridge_goes_on_when_the_api_server_comes_back_and_has_forgotten_the_past(
    site: Site,
) -> None:
    running = site.submit("train")
    site.until(lambda: site.nodes_of(running))
    uid = site.pods(running)[0]["metadata"]["uid"]
    site.api_server.stop()
    site.step()
    site.api_server.store.compact()
    site.api_server.start()
    later = site.submit("later")
    site.until(lambda: site.nodes_of(later))
    assert site.pods(running)[0]["metadata"]["uid"] == uid
    assert len(site.attempts(running)) == 1


def test_nothing_is_listed_in_the_loop(site: Site) -> None:
    site.until(lambda: _active(site) == ("True", "Active"))
    for number in range(3):
        name = site.submit(f"train-{number}")
        site.until(partial(site.nodes_of, name))
    assert {kind: watcher.lists for kind, watcher in site.bridge.watchers.items()} == dict.fromkeys(
        site.bridge.watchers, 1
    )


def test_what_was_let_go_is_as_if_headroom_had_never_been_there(site: Site) -> None:
    _close()
    site.choose(giveBack={"enabled": False})
    name = site.submit("gang", pods=2)
    node = next(iter(site.fleet.nodes))
    _drain(node)
    site.until(lambda: site.check(name) and _is_cordoned(site, node))
    site.until(lambda: site.check(name).get("message"))
    site.kill(site.bridge)
    with closing(Api(str(site.api_server.kubeconfig()))) as api:
        let = let_all_go(api)
    assert (let.workloads, let.nodes) == (1, 1)
    eventually(lambda: len(site.nodes_of(name)) == 2)
    found = site.client.get("Node", node)
    assert not found.get("spec")
