"""Workloads, pods and nodes of a cluster, as the contract has them."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.kueue import names, nodes, parameters, pods, reading, writing
from headroom.kueue.nodes import Nodes
from headroom.kueue.parameters import BadParameters, Parameters
from headroom.kueue.pods import PodFacts
from headroom.kueue.reading import View
from headroom.schedulers.contract import EndedAs, JobState, NodeState, SchedulerJob, Wait
from tests.kubernetes.objects import GPU, make_check_state, make_node, make_pod, make_workload

AT = "2026-11-23T10:00:00Z"
SOME = [make_node(f"n{number}", labels={"pool": "a" if number < 3 else "b"}) for number in range(4)]
Document = dict[str, Any]


def view(documents: list[Document] = SOME, **chosen: Any) -> View:
    known = {each["metadata"]["name"]: each for each in documents}
    flavors = {"h200": {"spec": {"nodeLabels": {"pool": "a"}}}}
    given = Parameters(**chosen)
    return View({"headroom": given}, flavors, Nodes(known), given)


def condition(kind: str, *, holds: bool = True, **more: str) -> Document:
    said = {"reason": kind, "message": "", "lastTransitionTime": AT, **more}
    return {"type": kind, "status": str(holds), **said}


def workload(
    *conditions: Document,
    checks: tuple[Document, ...] = (make_check_state("headroom"),),
    evictions: int = 0,
    spec: Document | None = None,
    **of_pods: Any,
) -> Document:
    found = make_workload("vision", "w", **of_pods)
    found["metadata"] |= {"creationTimestamp": AT, "uid": "u", "resourceVersion": "7"}
    found["spec"] |= spec or {}
    status: Document = {"conditions": list(conditions), "admissionChecks": list(checks)}
    if evictions:
        counted = [{"reason": "AdmissionCheck", "underlyingCause": "", "count": evictions}]
        status["schedulingStats"] = {"evictions": counted}
    found["status"] = status
    return found


def pod(node: str = "n0", **annotations: str) -> PodFacts:
    document = make_pod("vision", f"p-{node}", gpus=8, nodeName=node)
    document["metadata"]["annotations"] = annotations
    return pods.pod_of(document, GPU)


def job(found: Document, *its: PodFacts, **chosen: Any) -> SchedulerJob:
    read = reading.job_of(found, its, view(**chosen))
    assert read is not None
    return read


RESERVED, ADMITTED = condition("QuotaReserved"), condition("Admitted")
EVICTED = condition("Evicted", message="Evicted for the feed")
READY = make_check_state(
    "headroom",
    "Ready",
    podSetUpdates=[
        {
            "name": "main",
            "annotations": {names.LEASE: "j/job/1", names.RESTARTS: "0"},
            "nodeSelector": {names.HOSTNAME: "n1"},
        }
    ],
)


@pytest.mark.parametrize(
    ("found", "its", "state", "why"),
    [
        (workload(), [], JobState.BLOCKED, "it waits for quota: Kueue has not looked"),
        (workload(RESERVED), [], JobState.HELD, ""),
        (
            workload(RESERVED, checks=(make_check_state("headroom"), make_check_state("image"))),
            [],
            JobState.BLOCKED,
            "it waits for the check image",
        ),
        (
            workload(RESERVED, checks=(make_check_state("headroom", "Retry"),)),
            [],
            JobState.BLOCKED,
            "it gives its quota back",
        ),
        (workload(RESERVED, checks=(READY,)), [], JobState.RELEASED, ""),
        (workload(RESERVED, ADMITTED, checks=(READY,)), [], JobState.RUNNING, ""),
        (
            workload(RESERVED, ADMITTED, EVICTED, evictions=1),
            [pod()],
            JobState.ENDING,
            "Evicted for the feed",
        ),
        (workload(EVICTED, evictions=1), [pod()], JobState.ENDING, "Evicted for the feed"),
        (
            workload(EVICTED, evictions=1),
            [],
            JobState.BLOCKED,
            "it has given its quota back: Evicted for the feed",
        ),
        (
            workload(EVICTED, spec={"active": False}),
            [],
            JobState.BLOCKED,
            "it is deactivated: Evicted for the feed",
        ),
        (workload(condition("Finished", reason="Succeeded")), [], JobState.ENDED, ""),
    ],
)
def test_the_state_of_a_workload_is_that_of_its_conditions_checks_and_pods(
    found: Document, its: list[PodFacts], state: JobState, why: str
) -> None:
    read = job(found, *its)
    assert read.state is state
    assert read.why.startswith(why)


def test_a_lease_is_good_for_one_start() -> None:
    assert job(workload(RESERVED, ADMITTED, checks=(READY,))).lease == "j/job/1"
    again = workload(RESERVED, ADMITTED, checks=(READY,), evictions=1)
    assert reading.job_of(again, [pod()], view()).lease == ""  # type: ignore[union-attr]


def test_what_ends_is_under_its_lease_until_its_pods_are_gone() -> None:
    mine = pod("n1", **{names.LEASE: "j/job/1", names.RESTARTS: "0"})
    ending = job(workload(EVICTED, evictions=1), mine)
    assert (ending.state, ending.restarts, ending.lease) == (JobState.ENDING, 0, "j/job/1")
    assert job(workload(EVICTED, evictions=1)).restarts == 1


@pytest.mark.parametrize(
    ("left", "its", "is_stranded"),
    [
        (SOME, [], False),
        ([each for each in SOME if each["metadata"]["name"] != "n1"], [], True),
        # Its pods were bound before their node went: they end with it.
        ([], [pod("n1"), pod("n1")], False),
    ],
)
def test_who_was_placed_on_nodes_that_have_gone_is_stranded(
    left: list[Document], its: list[PodFacts], is_stranded: bool
) -> None:
    found = workload(RESERVED, ADMITTED, checks=(READY,), pods=2, gpus=4)
    seen = view(left)
    check, read = reading.check_of(found, seen.checks), reading.job_of(found, its, seen)
    assert check is not None
    assert read is not None
    assert bool(reading.stranded(found, check, read, its, seen)) is is_stranded


@pytest.mark.parametrize(
    ("count", "gpus", "step", "wanted"),
    [(2, 8, 8, 2), (1, 4, 4, 1), (2, 4, 8, 1), (4, 4, 8, 2), (3, 4, 4, 3), (10, 1, None, 2)],
)
def test_gangs_take_one_node_or_whole_nodes_where_their_pods_allow_it(
    count: int, gpus: int, step: int | None, wanted: int
) -> None:
    read = job(workload(RESERVED, pods=count, gpus=gpus))
    assert (read.gpus, read.gpus_per_node, read.nodes_wanted) == (count * gpus, step, wanted)


def test_nodes_are_those_of_selector_affinity_flavor_and_tolerations() -> None:
    found = workload(RESERVED)
    assert job(found).only_nodes == []
    given = [{"name": "main", "count": 1, "flavors": {GPU: "h200"}}]
    found["status"]["admission"] = {"podSetAssignments": given}
    assert (job(found).gpus, job(found).only_nodes) == (8, ["n0", "n1", "n2"])
    spec = found["spec"]["podSets"][0]["template"]["spec"]
    wanted = {"key": names.HOSTNAME, "operator": "In", "values": ["n1", "n3"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    spec["affinity"] = {"nodeAffinity": {key: term}}
    assert job(found).only_nodes == ["n1"]
    tainted = make_node("n1", labels={"pool": "a"})
    tainted["spec"] = {"taints": [{"key": "mine", "effect": "NoSchedule"}]}
    read = reading.job_of(found, [], view([tainted, *SOME[2:]]))
    assert read is not None
    assert (read.state, read.why[:7]) == (JobState.BLOCKED, "no node")
    spec["tolerations"] = [{"key": "mine", "operator": "Exists"}]
    assert job_on([tainted, *SOME[2:]], found) == ["n1"]


def job_on(documents: list[Document], found: Document) -> list[str]:
    read = reading.job_of(found, [], view(documents))
    assert read is not None
    return read.only_nodes


def test_annotations_are_words_and_those_that_cannot_be_read_are_told() -> None:
    found = workload(RESERVED)
    said = {"headroom.dev/peak-w": "650", "headroom.dev/sing": "very loud", "other.dev/x": "1"}
    found["spec"]["podSets"][0]["template"]["metadata"] = {"annotations": said}
    assert job(found).comment == "headroom: peak_w=650 sing=very_loud"
    (wrong,) = reading.wrong_words(found)
    assert wrong.startswith("'sing' is none of")


def test_whose_it_is_comes_from_labels_else_from_the_namespace() -> None:
    found = workload(RESERVED, spec={"queueName": "team", "priority": 7})
    assert (job(found).user, job(found).account) == ("vision", "vision")
    labels = {"headroom.dev/user": "ada", "team": "speech"}
    found["spec"]["podSets"][0]["template"]["metadata"] = {"labels": labels}
    read = job(found, project_label="team")
    assert (read.user, read.account, read.partition, read.priority) == ("ada", "speech", "team", 7)


def test_long_names_stay_apart() -> None:
    refs = {reading.ref_of("n" * 60, "w" * 100 + end) for end in ("a", "b")}
    assert {len(ref) for ref in refs} == {100}


def test_who_asks_for_no_gpu_or_is_looked_at_by_no_check_is_left_alone() -> None:
    assert reading.job_of(workload(RESERVED, gpus=0), [], view()) is None
    assert reading.job_of(workload(RESERVED, checks=()), [], view()) is None
    # It runs, and where is not known yet: half of it would be counted.
    running = workload(RESERVED, ADMITTED, checks=())
    assert reading.job_of(running, [pod(), pod("")], view()) is None
    assert job(running, pod(), pod("n1")).nodes == ["n0", "n1"]


@pytest.mark.parametrize(
    ("found", "state"),
    [
        # Its pods are gone, and Kueue has not taken its quota back yet.
        (workload(RESERVED, ADMITTED, EVICTED, evictions=1), JobState.ENDING),
        # It is to give way before any of its pods stood on a node.
        (
            workload(RESERVED, ADMITTED, checks=(make_check_state("headroom", "Retry"),)),
            JobState.RUNNING,
        ),
        # Headroom was away, and the check is open then.
        (
            workload(RESERVED, ADMITTED, checks=(make_check_state("headroom", "Ready"),)),
            JobState.BLOCKED,
        ),
    ],
)
def test_who_runs_without_a_pod_and_a_lease_is_told_on_else_it_counts_as_lost(
    found: Document, state: JobState
) -> None:
    told = job(found)
    assert (told.state, told.lease, told.nodes, told.restarts) == (state, "", [], 0)
    assert told.gpus == job(workload(RESERVED)).gpus


def test_how_a_workload_ended() -> None:
    ends = [("Succeeded", EndedAs.SUCCEEDED), ("Failed", EndedAs.FAILED),
            ("OwnerNotFound", EndedAs.CANCELLED)]  # fmt: skip
    for reason, end in ends:
        assert job(workload(condition("Finished", reason=reason))).ended_as is end
    reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
    over = workload(condition("Evicted", reason=reason), spec={"active": False})
    assert job(over).ended_as is EndedAs.TIMED_OUT


# --- Nodes ---------------------------------------------------------------------------------------


def cordoned(*managers: str) -> Document:
    node = make_node("n0", labels={"rack": "A1"})
    node["spec"] = {"unschedulable": True}
    fields: Document = {"f:spec": {"f:unschedulable": {}}}
    node["metadata"]["managedFields"] = [{"manager": m, "fieldsV1": fields} for m in managers]
    node["metadata"]["annotations"] = {names.RESTRICTED: "inlet 38 °C"}
    return node


def test_whose_cordon_it_is_stands_in_managed_fields() -> None:
    ours = nodes.node_of(cordoned("headroom"), Parameters())
    assert (ours.state, ours.is_ours, ours.reason) == (NodeState.DRAINED, True, "inlet 38 °C")
    theirs = nodes.node_of(cordoned("headroom", "kubectl-cordon"), Parameters())
    assert (theirs.is_ours, theirs.drained_by) == (False, "kubectl-cordon, headroom")
    assert theirs.reason == "cordoned"


def test_a_node_that_is_not_ready_is_down_and_one_without_power_is_off() -> None:
    node = make_node("n0")
    node["status"]["conditions"][0]["status"] = "Unknown"
    assert nodes.node_of(node, Parameters()).state is NodeState.DOWN
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    node["spec"] = {"taints": [taint]}
    assert nodes.node_of(node, Parameters()).state is NodeState.OFF


def test_taints_of_others_stay() -> None:
    node = make_node("n0")
    node["metadata"]["resourceVersion"] = "7"
    node["spec"] = {"taints": [{"key": "mine", "effect": "NoSchedule"}]}
    patch = writing.taints(node, restricted=True)
    assert patch is not None
    assert [each["key"] for each in patch["spec"]["taints"]] == ["mine", names.RESTRICTED]
    node["spec"] = patch["spec"]
    assert writing.taints(node, restricted=True) is None
    back = writing.taints(node, restricted=False)
    assert back is not None
    assert [each["key"] for each in back["spec"]["taints"]] == ["mine"]


# --- What becomes of who waits -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "held_s", "state", "after_s"),
    [
        (Wait(start_in_s=30), 300, None, None),
        (Wait(start_in_s=600), 10, None, None),
        (Wait(start_in_s=600), 300, "Retry", 300),
        (Wait(start_in_s=70), 300, "Retry", 35),
        (Wait(start_in_s=1e6), 300, "Retry", 600),
        (Wait(), 300, "Retry", 600),
        (Wait(is_never=True), 0, "Rejected", None),
    ],
)
def test_who_waits_for_long_gives_its_quota_back_and_comes_before_it_can_start(
    wait: Wait, held_s: float, state: str | None, after_s: int | None
) -> None:
    found = writing.refusal(Parameters(), wait, 1000.0, 1000.0 + held_s)
    assert (found and found.state, found and found.requeue_after_s) == (state, after_s)


def test_who_is_to_stay_stays() -> None:
    waiting = parameters.read({"spec": {"neverPossible": "Wait"}})
    assert writing.refusal(waiting, Wait(is_never=True), 0.0, 1e6) == writing.Refusal("Retry", 600)
    kept = parameters.read({"spec": {"neverPossible": "Wait", "giveBack": {"enabled": False}}})
    assert writing.refusal(kept, Wait(is_never=True), 0.0, 1e6) is None
    assert writing.refusal(kept, Wait(start_in_s=1e5), 0.0, 1e6) is None


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"whenAway": "Maybe"}, "$.whenAway"),
        ({"giveBack": {"leastSeconds": 9, "mostSeconds": 3}}, "leastSeconds is above"),
        ({"nodeName": "oslo"}, "$.nodeName"),
        ({"gpuResorce": "x"}, "gpuResorce"),
        ({"tolerations": [{}] * 9}, "$.tolerations"),
    ],
)
def test_wrong_parameters_name_their_field(spec: Document, told: str) -> None:
    with pytest.raises(BadParameters) as error:
        parameters.read({"metadata": {"name": "mine"}, "spec": spec})
    assert told in str(error.value)
    assert "'mine'" in str(error.value)


@pytest.mark.parametrize("given", [None, {"apiGroup": "x", "kind": "y", "name": "z"}])
def test_a_check_names_parameters_of_ours(given: Document | None) -> None:
    with pytest.raises(BadParameters, match=r"HeadroomCheck of headroom\.dev"):
        parameters.reference({"spec": {"parameters": given}})


def test_a_check_keeps_the_time_of_its_state_and_names_what_was_seen() -> None:
    found = workload(RESERVED)
    check = reading.check_of(found, view().checks)
    assert check is not None
    same = writing.of_check(found, check, "Pending", "x" * 40_000, 0.0)
    (entry,) = same["status"]["admissionChecks"]
    assert entry["lastTransitionTime"] == check.written["lastTransitionTime"]
    assert len(entry["message"]) == 32_768
    assert same["metadata"]["resourceVersion"] == "7"
    (moved,) = writing.of_check(found, check, "Retry", "", 0.0, requeue_after_s=9)["status"][
        "admissionChecks"
    ]
    assert (moved["lastTransitionTime"], moved["requeueAfterSeconds"]) == (
        "1970-01-01T00:00:00Z",
        9,
    )


@pytest.mark.parametrize(
    ("resource", "model"), [("nvidia.com/mig-1g.10gb", "1g.10gb"), (GPU, ""), ("amd.com/gpu", "")]
)
def test_slices_of_gpus_are_told_by_their_profile(resource: str, model: str) -> None:
    assert reading.model_of(resource) == model
