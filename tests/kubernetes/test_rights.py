"""What the bridge to Kueue may do in a cluster: the role that the chart renders, and its calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart import HELM
from tests.kubernetes import objects
from tests.kubernetes.client import JSON, Client, Refused
from tests.kubernetes.rights import of_bridge
from tests.kubernetes.server import ApiServer
from tests.kubernetes.server.access import Call, Rule, rules_of, unused

pytestmark = pytest.mark.skipif(
    not Path(HELM).exists(), reason="no Helm: deploy/helm/ensure-helm.sh could not get it"
)

#: Where the release is that these tests render, and what its bridge leads by.
NAMESPACE = "default"
LEASE = "headroom-kueue"


@pytest.fixture
def bridge(api_server: ApiServer) -> Client:
    """A client with the rights of the bridge, in a cluster that has one of each."""
    admin = Client(api_server.kubeconfig())
    for made in (
        objects.make_node("n1"),
        objects.make_pod(NAMESPACE),
        objects.make_workload(NAMESPACE),
        objects.make_check("headroom"),
        objects.make_check("theirs"),
    ):
        admin.create(made)
    api_server.calls.clear()
    token = api_server.token_for("bridge", of_bridge(NAMESPACE, LEASE))
    return Client(api_server.kubeconfig(token), manager="headroom")


def test_it_may_not_make_or_delete_what_people_have(bridge: Client) -> None:
    for kind, name, namespace in (
        ("Node", "n1", ""),
        ("Pod", "p", NAMESPACE),
        ("Workload", "w", NAMESPACE),
        ("AdmissionCheck", "headroom", ""),
    ):
        with pytest.raises(Refused) as refused:
            bridge.delete(kind, name, namespace)
        assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    with pytest.raises(Refused, match='cannot create resource "pods" in API group ""'):
        bridge.create(objects.make_pod(NAMESPACE, "more"))


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap", "Job", "Namespace"])
def test_it_may_not_read_what_it_does_not_need(bridge: Client, kind: str) -> None:
    with pytest.raises(Refused, match="at the cluster scope"):
        bridge.list(kind)


def test_it_speaks_for_its_own_checks_alone(bridge: Client) -> None:
    state: dict[str, dict[str, list[str]]] = {"status": {"conditions": []}}
    bridge.patch("AdmissionCheck", "headroom", state, subresource="status")
    with pytest.raises(Refused, match='"theirs" is forbidden'):
        bridge.patch("AdmissionCheck", "theirs", state, subresource="status")


def test_it_writes_no_lease_but_its_own(bridge: Client) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": NAMESPACE},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    made = bridge.create(lease)
    bridge.update({**made, "spec": {**made["spec"], "holderIdentity": "b"}})
    other = {"metadata": {"name": "kube-scheduler", "namespace": "kube-system"}}
    with pytest.raises(Refused, match='cannot create resource "leases"'):
        bridge.create({**lease, **other})
    with pytest.raises(Refused, match='cannot get resource "leases"'):
        bridge.get("Lease", "another", NAMESPACE)


def _calls() -> list[Call]:
    """Return one of each call that ``headroom.kueue`` makes. Its tests run under the same role."""
    kueue, ours = "kueue.x-k8s.io", "headroom.dev"
    followed = (
        ("", "nodes"),
        ("", "pods"),
        (kueue, "workloads"),
        (kueue, "admissionchecks"),
        (kueue, "resourceflavors"),
        (ours, "headroomchecks"),
    )
    written = (
        ("", "nodes", "", "n1"),
        ("", "pods", "vision", "p"),
        (kueue, "workloads", "vision", "w"),
        (kueue, "workloads/status", "vision", "w"),
        (kueue, "admissionchecks/status", "", "headroom"),
        (ours, "headroomchecks/status", "", "headroom"),
    )
    lease = ("coordination.k8s.io", "leases", NAMESPACE)
    return [
        *(Call("bridge", verb, *of) for of in followed for verb in ("list", "watch")),
        *(Call("bridge", "patch", *of) for of in written),
        Call("bridge", "create", *lease),
        *(Call("bridge", verb, *lease, LEASE) for verb in ("get", "update")),
    ]


def test_it_may_do_what_it_does_and_nothing_else() -> None:
    rules = of_bridge(NAMESPACE, LEASE) or ()
    refused = [call for call in _calls() if not any(rule.allows(call) for rule in rules)]
    assert not refused
    assert not unused(rules, _calls())


def test_no_rule_has_a_wildcard() -> None:
    for rule in of_bridge(NAMESPACE, LEASE) or ():
        assert "*" not in (*rule.groups, *rule.resources, *rule.verbs)


def test_what_was_called_is_recorded_with_its_outcome(
    api_server: ApiServer, bridge: Client
) -> None:
    bridge.patch("Node", "n1", [{"op": "add", "path": "/spec", "value": {}}], form=JSON)
    with pytest.raises(Refused):
        bridge.delete("Node", "n1")
    assert api_server.calls == [
        Call("bridge", "patch", "", "nodes", "", "n1", 200),
        Call("bridge", "delete", "", "nodes", "", "n1", 403),
    ]


def test_rights_that_no_call_needs_are_found() -> None:
    rules = rules_of(
        {"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "delete"]}]}
    )
    assert unused(rules, [Call("bridge", "list", "", "nodes")]) == [
        Rule(("",), ("nodes",), ("delete",))
    ]
