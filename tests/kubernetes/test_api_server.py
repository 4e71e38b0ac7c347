"""What clients of Kubernetes rely on, of the stand-in or of a real API server.

Facts are those of the documentation, under "Kubernetes API Concepts" and "Server-Side Apply", and
of apimachinery's code for the sentences.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import urllib3

from tests.kubernetes.client import JSON, MERGE, STRATEGIC, Client, Refused
from tests.kubernetes.objects import (
    make_check_state,
    make_config,
    make_pod,
    make_workload,
    status_of,
)
from tests.kubernetes.server import ApiServer

Document = dict[str, Any]


# Versions


def test_a_write_made_of_an_older_version_is_a_conflict(client: Client, namespace: str) -> None:
    first = client.create(make_config(namespace, x="1"))
    second = client.update({**first, "data": {"x": "2"}})
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    with pytest.raises(Refused) as refused:
        client.update({**first, "data": {"x": "3"}})
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert "the object has been modified" in str(refused.value)
    assert client.get("ConfigMap", "a", namespace)["data"] == {"x": "2"}


def test_a_write_that_names_no_version_wins(client: Client, namespace: str) -> None:
    client.create(make_config(namespace, x="1"))
    assert client.update(make_config(namespace, x="2"))["data"] == {"x": "2"}


def test_a_write_that_changes_nothing_makes_no_version(client: Client, namespace: str) -> None:
    made = client.create(make_config(namespace, x="1"))
    again = client.patch("ConfigMap", "a", {"data": {"x": "1"}}, namespace)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_only_one_of_many_writers_of_a_version_wins(client: Client, namespace: str) -> None:
    made = client.create(make_config(namespace, x="0"))
    won: list[str] = []
    lost: list[str] = []

    def write(number: int) -> None:
        try:
            client.update({**made, "data": {"x": str(number)}})
            won.append(str(number))
        except Refused as refused:
            lost.append(refused.reason)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), lost) == (1, ["Conflict"] * 7)
    assert client.get("ConfigMap", "a", namespace)["data"] == {"x": won[0]}


def test_a_name_is_given_once(client: Client, namespace: str) -> None:
    client.create(make_config(namespace))
    with pytest.raises(Refused, match='configmaps "a" already exists') as refused:
        client.create(make_config(namespace))
    assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")


def test_names_can_be_made_by_the_server(client: Client, namespace: str) -> None:
    made = client.create(
        {**make_config(namespace), "metadata": {"generateName": "x-", "namespace": namespace}}
    )
    assert made["metadata"]["name"].startswith("x-")
    assert len(made["metadata"]["name"]) > len("x-")


def test_nothing_is_made_in_a_namespace_that_is_not_there(client: Client) -> None:
    with pytest.raises(Refused, match='namespaces "nowhere" not found') as refused:
        client.create(make_config("nowhere"))
    assert refused.value.code == 404


def test_generation_counts_changes_of_what_is_wanted(client: Client, namespace: str) -> None:
    made = client.create(make_workload(namespace))
    assert made["metadata"]["generation"] == 1
    labeled = client.patch("Workload", "w", {"metadata": {"labels": {"a": "b"}}}, namespace)
    assert labeled["metadata"]["generation"] == 1
    paused = client.patch("Workload", "w", {"spec": {"active": False}}, namespace)
    assert paused["metadata"]["generation"] == 2


def test_a_dry_run_says_what_would_be_and_keeps_nothing(client: Client, namespace: str) -> None:
    client.create(make_config(namespace, x="1"))
    would = client.patch("ConfigMap", "a", {"data": {"x": "2"}}, namespace, dryRun="All")
    assert would["data"] == {"x": "2"}
    assert client.get("ConfigMap", "a", namespace)["data"] == {"x": "1"}


# Lists


def test_pages_of_a_list_are_of_one_version(client: Client, namespace: str) -> None:
    for name in "abc":
        client.create(make_config(namespace, name))
    first = client.list("ConfigMap", namespace, limit=2)
    client.delete("ConfigMap", "c", namespace)
    rest = client.list("ConfigMap", namespace, **{"continue": first["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in (*first["items"], *rest["items"])] == list("abc")
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in rest["metadata"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=red", "a"),
        ("team!=red", "bc"),
        ("team in (red,blue)", "ab"),
        ("team notin (red)", "bc"),
        ("team", "ab"),
        ("!team", "c"),
        ("team,gpu=h200", "b"),
    ],
)
def test_labels_select(client: Client, namespace: str, selector: str, names: str) -> None:
    labels: dict[str, Document] = {"a": {"team": "red"}, "b": {"team": "blue", "gpu": "h200"}}
    for name in "abc":
        made = make_config(namespace, name)
        made["metadata"]["labels"] = labels.get(name, {})
        client.create(made)
    found = client.list("ConfigMap", namespace, labelSelector=selector, fieldSelector="")
    assert "".join(item["metadata"]["name"] for item in found["items"]) == names


def test_fields_select(client: Client, namespace: str) -> None:
    client.create(make_pod(namespace, "on", nodeName="n1"))
    client.create(make_pod(namespace, "off"))
    found = client.list("Pod", namespace, fieldSelector="spec.nodeName=n1")
    assert [item["metadata"]["name"] for item in found["items"]] == ["on"]
    with pytest.raises(Refused, match="field label not supported") as refused:
        client.list("Pod", namespace, fieldSelector="spec.priority=1")
    assert refused.value.code == 400


# Watches


def test_a_watch_goes_on_where_a_list_ended(client: Client, namespace: str) -> None:
    client.create(make_config(namespace, "a"))
    since = client.list("ConfigMap", namespace)["metadata"]["resourceVersion"]
    client.create(make_config(namespace, "b"))
    client.patch("ConfigMap", "b", {"data": {"x": "1"}}, namespace)
    client.delete("ConfigMap", "a", namespace)
    events = client.watch("ConfigMap", namespace, resourceVersion=since, timeoutSeconds=1)
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("ADDED", "b"),
        ("MODIFIED", "b"),
        ("DELETED", "a"),
    ]


def test_a_watch_is_resumed_without_loss(client: Client, namespace: str) -> None:
    seen: list[str] = []
    since = client.list("ConfigMap", namespace)["metadata"]["resourceVersion"]
    for number in range(4):
        client.create(make_config(namespace, f"c{number}"))
        for event in client.watch("ConfigMap", namespace, resourceVersion=since, timeoutSeconds=1):
            seen.append(event["object"]["metadata"]["name"])
            since = event["object"]["metadata"]["resourceVersion"]
            break
    assert seen == ["c0", "c1", "c2", "c3"]


def test_a_watch_without_a_version_begins_with_what_is_there(
    client: Client, namespace: str
) -> None:
    client.create(make_config(namespace, "a"))
    events = client.watch("ConfigMap", namespace, fieldSelector="metadata.name=a", timeoutSeconds=1)
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [("ADDED", "a")]


def test_an_object_that_leaves_a_selection_is_deleted_for_its_watch(
    client: Client, namespace: str
) -> None:
    made = make_config(namespace, "a")
    made["metadata"]["labels"] = {"team": "red"}
    since = client.create(made)["metadata"]["resourceVersion"]
    for team in ("blue", "red"):
        client.patch("ConfigMap", "a", {"metadata": {"labels": {"team": team}}}, namespace)
    events = client.watch(
        "ConfigMap", namespace, resourceVersion=since, labelSelector="team=red", timeoutSeconds=1
    )
    assert [event["type"] for event in events] == ["DELETED", "ADDED"]


def test_bookmarks_tell_how_far_a_quiet_watch_has_come(api_server: ApiServer) -> None:
    client = Client(api_server.kubeconfig())
    since = client.list("Lease", "default")["metadata"]["resourceVersion"]
    client.create(make_config("default"))
    events = client.watch(
        "Lease", "default", resourceVersion=since, allowWatchBookmarks="true", timeoutSeconds=3
    )
    mark = next(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "Lease"
    assert int(mark["object"]["metadata"]["resourceVersion"]) > int(since)


@pytest.mark.parametrize("by_status", [False, True], ids=["in the stream", "by HTTP"])
def test_a_watch_of_what_was_compacted_has_to_list_again(
    api_server: ApiServer, by_status: bool
) -> None:
    client = Client(api_server.kubeconfig())
    since = client.list("ConfigMap", "default")["metadata"]["resourceVersion"]
    client.create(make_config("default"))
    api_server.store.compact()
    api_server.late_by_status = by_status
    watch = client.watch("ConfigMap", "default", resourceVersion=since)
    if by_status:
        with pytest.raises(Refused) as refused:
            next(watch)
        told = refused.value.status
    else:
        event = next(watch)
        assert event["type"] == "ERROR"
        told = event["object"]
    assert (told["kind"], told["code"], told["reason"]) == ("Status", 410, "Expired")
    assert "too old resource version" in told["message"]
    again = client.list("ConfigMap", "default")
    assert [item["metadata"]["name"] for item in again["items"]] == ["a"]


def test_a_page_of_what_was_compacted_is_gone(api_server: ApiServer) -> None:
    client = Client(api_server.kubeconfig())
    for name in "abc":
        client.create(make_config("default", name))
    token = client.list("ConfigMap", "default", limit=1)["metadata"]["continue"]
    api_server.store.compact()
    with pytest.raises(Refused) as refused:
        client.list("ConfigMap", "default", **{"continue": token})
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_a_restart_cuts_watches_and_keeps_objects_and_versions(api_server: ApiServer) -> None:
    client = Client(api_server.kubeconfig())
    made = client.create(make_config("default"))
    since = made["metadata"]["resourceVersion"]
    watch = client.watch("ConfigMap", "default", resourceVersion=since)
    client.patch("ConfigMap", "a", {"data": {"x": "1"}}, "default")
    assert next(watch)["type"] == "MODIFIED"
    api_server.stop()
    with pytest.raises((StopIteration, urllib3.exceptions.HTTPError)):
        next(watch)
    api_server.start()
    resumed = client.watch("ConfigMap", "default", resourceVersion=since)
    assert next(resumed)["object"]["data"] == {"x": "1"}


# Patches


@pytest.mark.parametrize(
    ("form", "patch"),
    [
        (MERGE, {"data": {"x": None, "y": "2"}}),
        (STRATEGIC, {"data": {"x": None, "y": "2"}}),
        (
            JSON,
            [
                {"op": "test", "path": "/data/x", "value": "1"},
                {"op": "remove", "path": "/data/x"},
                {"op": "add", "path": "/data/y", "value": "2"},
            ],
        ),
    ],
)
def test_patches_change_what_they_name(
    client: Client, namespace: str, form: str, patch: Any
) -> None:
    client.create(make_config(namespace, x="1"))
    assert client.patch("ConfigMap", "a", patch, namespace, form=form)["data"] == {"y": "2"}


def test_a_json_patch_whose_test_fails_changes_nothing(client: Client, namespace: str) -> None:
    client.create(make_config(namespace, x="1"))
    patch = [
        {"op": "remove", "path": "/data/x"},
        {"op": "test", "path": "/data", "value": {"z": "1"}},
    ]
    with pytest.raises(Refused) as refused:
        client.patch("ConfigMap", "a", patch, namespace, form=JSON)
    assert refused.value.code == 422
    assert client.get("ConfigMap", "a", namespace)["data"] == {"x": "1"}


def test_a_patch_that_names_an_older_version_is_a_conflict(client: Client, namespace: str) -> None:
    first = client.create(make_config(namespace, x="1"))
    client.patch("ConfigMap", "a", {"data": {"x": "2"}}, namespace)
    version = first["metadata"]["resourceVersion"]
    with pytest.raises(Refused) as refused:
        client.patch("ConfigMap", "a", {"metadata": {"resourceVersion": version}}, namespace)
    assert refused.value.reason == "Conflict"


def test_strategic_patches_merge_lists_by_their_keys(client: Client, namespace: str) -> None:
    client.create(make_pod(namespace))
    patch = {"spec": {"containers": [{"name": "main", "image": "train:2"}]}}
    found = client.patch("Pod", "p", patch, namespace, form=STRATEGIC)
    assert [c["image"] for c in found["spec"]["containers"]] == ["train:2"]
    gone = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    client.patch("Pod", "p", gone, namespace, form=STRATEGIC, subresource="status")
    more = {"status": {"conditions": [{"type": "ContainersReady", "status": "True"}]}}
    both = client.patch("Pod", "p", more, namespace, form=STRATEGIC, subresource="status")
    assert {c["type"] for c in both["status"]["conditions"]} >= {"Ready", "ContainersReady"}


def test_custom_resources_take_no_strategic_patch(client: Client, namespace: str) -> None:
    client.create(make_workload(namespace))
    with pytest.raises(Refused) as refused:
        client.patch("Workload", "w", {"spec": {"active": False}}, namespace, form=STRATEGIC)
    assert (refused.value.code, refused.value.reason) == (415, "UnsupportedMediaType")


# Server-side apply


def test_an_applied_field_belongs_to_its_manager(client: Client, namespace: str) -> None:
    made = client.apply(make_config(namespace, x="1"), fieldManager="red")
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("red", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:x": {}}}
    with pytest.raises(Refused) as refused:
        client.apply(make_config(namespace, x="2"), fieldManager="blue")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert refused.value.fields == [".data.x"]
    assert 'conflict with "red": .data.x' in str(refused.value)


def test_force_takes_a_field_from_its_owner(client: Client, namespace: str) -> None:
    client.apply(make_config(namespace, x="1", y="1"), fieldManager="red")
    found = client.apply(make_config(namespace, x="2"), fieldManager="blue", force=True)
    assert found["data"] == {"x": "2", "y": "1"}
    owners = {e["manager"]: e["fieldsV1"] for e in found["metadata"]["managedFields"]}
    assert owners == {"red": {"f:data": {"f:y": {}}}, "blue": {"f:data": {"f:x": {}}}}


def test_managers_that_agree_own_a_field_together(client: Client, namespace: str) -> None:
    client.apply(make_config(namespace, x="1"), fieldManager="red")
    client.apply(make_config(namespace, x="1"), fieldManager="blue")
    kept = client.apply(make_config(namespace), fieldManager="red")
    assert kept["data"] == {"x": "1"}
    gone = client.apply(make_config(namespace), fieldManager="blue")
    assert not gone.get("data")


def test_what_a_manager_no_longer_applies_is_removed(client: Client, namespace: str) -> None:
    client.apply(make_config(namespace, x="1", y="1"), fieldManager="red")
    client.patch("ConfigMap", "a", {"data": {"z": "1"}}, namespace, fieldManager="blue")
    found = client.apply(make_config(namespace, x="1"), fieldManager="red")
    assert found["data"] == {"x": "1", "z": "1"}


def test_an_update_takes_what_it_changes(client: Client, namespace: str) -> None:
    client.apply(make_config(namespace, x="1", y="1"), fieldManager="red")
    client.patch("ConfigMap", "a", {"data": {"x": "2"}}, namespace, fieldManager="blue")
    with pytest.raises(Refused) as refused:
        client.apply(make_config(namespace, x="1", y="1"), fieldManager="red")
    assert refused.value.fields == [".data.x"]
    assert 'conflict with "blue" using v1' in str(refused.value)


def test_items_of_a_keyed_list_have_owners_of_their_own(client: Client, namespace: str) -> None:
    workload = client.create(make_workload(namespace))
    for check in ("power", "network"):
        state = make_check_state(check, message=check)
        client.apply(
            status_of(workload, admissionChecks=[state]), "status", fieldManager=f"{check}-check"
        )
    ready = make_check_state("power", "Ready")
    found = client.apply(
        status_of(workload, admissionChecks=[ready]), "status", fieldManager="power-check"
    )
    states = {c["name"]: c["state"] for c in found["status"]["admissionChecks"]}
    assert states == {"power": "Ready", "network": "Pending"}
    theirs = make_check_state("network", "Ready", message="network")
    with pytest.raises(Refused) as refused:
        client.apply(
            status_of(workload, admissionChecks=[theirs]),
            "status",
            fieldManager="power-check",
        )
    assert refused.value.fields == ['.status.admissionChecks[name="network"].state']
    assert 'conflict with "network-check" with subresource "status"' in str(refused.value)


def test_an_item_that_is_no_longer_applied_goes_and_others_stay(
    client: Client, namespace: str
) -> None:
    workload = client.create(make_workload(namespace))
    for check in ("power", "network"):
        client.apply(
            status_of(workload, admissionChecks=[make_check_state(check)]),
            "status",
            fieldManager=check,
        )
    found = client.apply(status_of(workload, admissionChecks=[]), "status", fieldManager="power")
    assert [check["name"] for check in found["status"]["admissionChecks"]] == ["network"]


def test_an_apply_needs_a_manager(client: Client, namespace: str) -> None:
    with pytest.raises(Refused, match="fieldManager is required") as refused:
        client.apply(make_config(namespace), fieldManager="")
    assert refused.value.code in (400, 422)


# Status


def test_status_and_all_else_are_written_apart(client: Client, namespace: str) -> None:
    states = {"admissionChecks": [make_check_state("power")]}
    made = client.create({**make_workload(namespace), "status": states})
    assert "status" not in made
    both = {**made, "spec": {**made["spec"], "priority": 7}, "status": states}
    spec = client.update(both)
    assert spec["spec"]["priority"] == 7
    assert "status" not in spec
    version = spec["metadata"]["resourceVersion"]
    other = {**both, "spec": {**both["spec"], "priority": 9}}
    other["metadata"] = {**other["metadata"], "resourceVersion": version}
    status = client.update(other, "status")
    assert status["spec"]["priority"] == 7
    assert status["status"]["admissionChecks"][0]["name"] == "power"
    assert status["metadata"]["generation"] == spec["metadata"]["generation"]


# Deleting


def test_finalizers_hold_an_object_that_was_deleted(client: Client, namespace: str) -> None:
    held = make_workload(namespace)
    held["metadata"]["finalizers"] = ["kueue.x-k8s.io/resource-in-use", "example.com/other"]
    client.create(held)
    going = client.delete("Workload", "w", namespace)
    assert going["metadata"]["deletionTimestamp"]
    fewer = {"metadata": {"finalizers": ["example.com/other"]}}
    client.patch("Workload", "w", fewer, namespace)
    more = {"metadata": {"finalizers": ["example.com/other", "example.com/new"]}}
    with pytest.raises(Refused, match="no new finalizers can be added"):
        client.patch("Workload", "w", more, namespace)
    client.patch("Workload", "w", {"metadata": {"finalizers": []}}, namespace)
    with pytest.raises(Refused) as refused:
        client.get("Workload", "w", namespace)
    assert refused.value.code == 404


def test_a_delete_may_be_bound_to_one_object_of_a_name(client: Client, namespace: str) -> None:
    client.create(make_config(namespace))
    with pytest.raises(Refused, match="Precondition failed: UID") as refused:
        client.delete("ConfigMap", "a", namespace, preconditions={"uid": "another"})
    assert refused.value.code == 409


def test_a_pod_that_runs_has_its_grace(client: Client, namespace: str) -> None:
    client.create(make_pod(namespace, nodeName="n1", terminationGracePeriodSeconds=45))
    going = client.delete("Pod", "p", namespace)
    assert going["metadata"]["deletionGracePeriodSeconds"] == 45
    client.delete("Pod", "p", namespace, gracePeriodSeconds=0)
    with pytest.raises(Refused):
        client.get("Pod", "p", namespace)


def test_a_pod_is_evicted_and_says_why(client: Client, namespace: str) -> None:
    client.create(make_pod(namespace, nodeName="n1"))
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": namespace},
    }
    done = client.call("POST", f"api/v1/namespaces/{namespace}/pods/p/eviction", eviction)
    assert done["status"] == "Success"
    pod = client.get("Pod", "p", namespace)
    assert pod["metadata"]["deletionTimestamp"]
    reasons = {c["type"]: c["reason"] for c in pod["status"]["conditions"] if "reason" in c}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"
    client.delete("Pod", "p", namespace, gracePeriodSeconds=0)


def test_a_disruption_budget_can_forbid_an_eviction(client: Client, namespace: str) -> None:
    pod = make_pod(namespace, nodeName="n1")
    pod["metadata"]["labels"] = {"app": "serve"}
    client.create(pod)
    client.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": namespace},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "serve"}}},
        }
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    with pytest.raises(Refused) as refused:
        client.call("POST", f"api/v1/namespaces/{namespace}/pods/p/eviction", eviction)
    assert (refused.value.code, refused.value.reason) == (429, "TooManyRequests")
    client.delete("Pod", "p", namespace, gracePeriodSeconds=0)


# Validation


def _check(**spec: Any) -> Document:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": f"c-{secrets.token_hex(4)}"},
        "spec": spec,
    }


def test_the_controller_of_a_check_never_changes(client: Client) -> None:
    made = client.create(_check(controllerName="example.com/power"))
    name = made["metadata"]["name"]
    with pytest.raises(Refused, match="field is immutable") as refused:
        client.patch("AdmissionCheck", name, {"spec": {"controllerName": "example.com/other"}})
    assert refused.value.fields == ["spec.controllerName"]
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    client.delete("AdmissionCheck", name)


def test_all_that_is_wrong_is_told_at_once_with_its_place(client: Client, namespace: str) -> None:
    workload = client.create(make_workload(namespace))
    wrong = [
        {"name": "power", "state": "Maybe", "message": "x" * 32_769},
        make_check_state("network", requeueAfterSeconds=-1),
    ]
    with pytest.raises(Refused) as refused:
        client.update({**workload, "status": {"admissionChecks": wrong}}, "status")
    causes = {c["field"]: c["reason"] for c in refused.value.status["details"]["causes"]}
    assert causes == {
        "status.admissionChecks[0].state": "FieldValueNotSupported",
        "status.admissionChecks[0].message": "FieldValueTooLong",
        "status.admissionChecks[0].lastTransitionTime": "FieldValueRequired",
        "status.admissionChecks[1].requeueAfterSeconds": "FieldValueInvalid",
    }


def test_a_list_by_keys_has_each_once(client: Client, namespace: str) -> None:
    workload = client.create(make_workload(namespace))
    twice = {"admissionChecks": [make_check_state("power"), make_check_state("power", "Ready")]}
    with pytest.raises(Refused, match="Duplicate value") as refused:
        client.update({**workload, "status": twice}, "status")
    assert refused.value.fields == ["status.admissionChecks[1]"]


def _tolerations(count: int) -> list[Document]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


@pytest.mark.parametrize(
    ("tolerations", "wrong"),
    [
        (_tolerations(8), ""),
        (_tolerations(9), "must have at most 8 items"),
        ([{"operator": "Equal", "value": "x"}], "operator must be Exists when 'key' is empty"),
        ([{"key": "a", "operator": "Exists", "value": "x"}], "a value must be empty"),
        ([{"key": "a", "effect": "Never"}], "supported taint effect values"),
    ],
)
def test_tolerations_of_an_update_are_checked(
    client: Client, namespace: str, tolerations: list[Document], wrong: str
) -> None:
    workload = client.create(make_workload(namespace))
    updates = [{"name": "main", "tolerations": tolerations}]
    state = make_check_state("power", "Ready", podSetUpdates=updates)
    write: Callable[[], Any] = lambda: client.update(  # noqa: E731
        {**workload, "status": {"admissionChecks": [state]}}, "status"
    )
    if not wrong:
        assert write()["status"]["admissionChecks"][0]["podSetUpdates"] == updates
        return
    with pytest.raises(Refused, match=wrong):
        write()


def test_unknown_fields_are_refused_warned_of_or_dropped(client: Client, namespace: str) -> None:
    wrong = make_workload(namespace, colour="red")
    with pytest.raises(Refused, match=r'strict decoding error: unknown field "spec.colour"'):
        client.create(wrong, fieldValidation="Strict")
    made = client.create(wrong, fieldValidation="Ignore")
    assert "colour" not in made["spec"]


def test_defaults_are_filled_in(client: Client, namespace: str) -> None:
    assert client.create(make_workload(namespace))["spec"]["active"] is True


def test_what_a_pod_is_does_not_change(client: Client, namespace: str) -> None:
    client.create(make_pod(namespace, schedulingGates=[{"name": "example.com/gate"}]))
    open_gate = {"spec": {"schedulingGates": [], "nodeSelector": {"rack": "r1"}}}
    assert client.patch("Pod", "p", open_gate, namespace)["spec"]["nodeSelector"] == {"rack": "r1"}
    with pytest.raises(Refused, match="pod updates may not change fields other than"):
        client.patch("Pod", "p", {"spec": {"nodeSelector": {"rack": "r2"}}}, namespace)


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "x" * 254])
def test_names_are_those_of_dns(client: Client, namespace: str, name: str) -> None:
    with pytest.raises(Refused) as refused:
        client.create(make_config(namespace, name))
    assert refused.value.code == 422
    assert refused.value.fields == ["metadata.name"]


# Who may


def test_a_token_of_nobody_opens_nothing(api_server: ApiServer) -> None:
    path = api_server.kubeconfig()
    stranger = path.with_name("stranger.yaml")
    stranger.write_text(path.read_text().replace(api_server.token, "wrong"))
    with pytest.raises(Refused) as refused:
        Client(stranger).list("Node")
    assert (refused.value.code, refused.value.reason) == (401, "Unauthorized")


def test_failures_are_answered_when_a_test_wants_them(api_server: ApiServer) -> None:
    client = Client(api_server.kubeconfig())
    api_server.fail(429, "TooManyRequests", retryAfterSeconds=2)
    with pytest.raises(Refused) as refused:
        client.list("Node")
    assert refused.value.status["details"]["retryAfterSeconds"] == 2
    assert client.list("Node")["items"] == []


def test_a_watch_holds_up_no_other_call(api_server: ApiServer) -> None:
    client = Client(api_server.kubeconfig())
    watches = [client.watch("Node", timeoutSeconds=20) for _ in range(4)]
    for number, watch in enumerate(watches):
        name = f"n{number}"
        client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        assert next(watch)["type"] == "ADDED"
    begin = time.monotonic()
    assert len(client.list("Node")["items"]) == 4
    assert time.monotonic() - begin < 18
