"""The order of Kueue's states, as published exchanges have it, on an API server."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.client import Client, Refused
from tests.kubernetes.kueue import Kueue, states
from tests.kubernetes.kueue.controller import workload_name
from tests.kubernetes.objects import (
    make_check,
    make_cluster_queue,
    make_flavor,
    make_job,
    make_local_queue,
    make_namespace,
    make_node,
    make_workload,
    status_of,
)
from tests.kubernetes.server import ApiServer

Document = dict[str, Any]

EXCHANGES = yaml.safe_load((Path(__file__).parent / "exchanges" / "kueue.yaml").read_text())


def eventually(look: Callable[[], Any], wait_s: float = 60) -> Any:
    """Return what a look finds as soon as it is true."""
    until = time.monotonic() + wait_s
    while True:
        found = look()
        if found or time.monotonic() > until:
            assert found, "it did not come to pass"
            return found
        time.sleep(0.02)


class Cluster:
    """A cluster with one queue and one check, all named apart from other tests'."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.mark = secrets.token_hex(4)
        self.namespace = f"t-{self.mark}"
        self.check = f"power-{self.mark}"
        self.queue = f"gpus-{self.mark}"
        self.flavor = f"h200-{self.mark}"

    def build(self, *, gpus: int = 32, nodes: int = 0, **spec: Any) -> None:
        """Make namespace, flavor, check and queues."""
        create = self.client.create
        create(make_namespace(self.namespace))
        create(make_flavor(self.flavor))
        create(make_check(self.check))
        checks = (self.check,)
        create(make_cluster_queue(self.queue, gpus=gpus, flavor=self.flavor, checks=checks, **spec))
        create(make_local_queue(self.namespace, queue=self.queue))
        for number in range(nodes):
            labels = {"test": self.mark, "rack": f"r{number % 2}"}
            create(make_node(f"n{number}-{self.mark}", labels=labels))
        self.activate(True)

    def activate(self, active: bool) -> None:
        """Say of the check whether its controller is there."""
        found = self.client.get("AdmissionCheck", self.check)
        states.set_condition(found, "Active", active, "Tests", "", states.moment_of(_NOW))
        self.client.update(found, "status")

    def is_open(self) -> bool:
        """Whether the queue gives quota."""
        return states.holds(self.client.get("ClusterQueue", self.queue), "Active")

    def is_asked(self, name: str = "w") -> bool:
        """Whether a workload has quota and waits for its check."""
        found = self.workload(name)
        has_quota = states.holds(found, "QuotaReserved") and not states.holds(found, "Evicted")
        return has_quota and {check["state"] for check in states.checks(found)} == {"Pending"}

    def clear(self) -> None:
        for kind in ("Node", "ClusterQueue", "AdmissionCheck", "ResourceFlavor", "Namespace"):
            for item in self.client.list(kind)["items"]:
                if item["metadata"]["name"].endswith(self.mark):
                    self.client.delete(kind, item["metadata"]["name"])

    def workload(self, name: str = "w") -> Document:
        return self.client.get("Workload", name, self.namespace)

    def say(self, state: str, name: str = "w", **more: Any) -> Document:
        """Write the state of the check as its controller does: applied, with force."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        check = {
            "name": self.check,
            "state": state,
            "message": "",
            "lastTransitionTime": now,
            **more,
        }
        return self.client.apply(
            status_of(self.workload(name), admissionChecks=[check]),
            "status",
            force=True,
            fieldManager="check",
        )

    def state(self, name: str = "w") -> str:
        found = states.checks(self.workload(name))
        return str(found[0]["state"]) if found else ""

    def has(self, condition: str, name: str = "w") -> bool:
        return states.holds(self.workload(name), condition)


_NOW = "2026-11-01T00:00:00Z"


@pytest.fixture
def cluster(client: Client) -> Iterator[Cluster]:
    found = Cluster(client)
    yield found
    found.clear()


def told(client: Client, namespace: str, since: str, wanted: int) -> list[list[str]]:
    """Return the states that a workload went through, as a watch saw them: what changed each time.

    Parts are written as the exchanges have them: ``QuotaReserved=True:QuotaReserved``,
    ``check=Pending``.
    """
    before: set[str] = set()
    found: list[list[str]] = []
    for event in client.watch("Workload", namespace, resourceVersion=since, timeoutSeconds=20):
        status = event["object"].get("status", {})
        parts = {
            f"{c['type']}={c['status']}:{c['reason']}" for c in status.get("conditions", ())
        } | {f"check={check['state']}" for check in status.get("admissionChecks", ())}
        if not event["object"]["spec"].get("active", True):
            parts.add("active=False")
        if parts - before:
            found.append(sorted(parts - before))
        before = parts
        if len(found) == wanted:
            break
    return found


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: str(exchange["name"]))
def test_states_come_in_the_order_of_the_exchange(cluster: Cluster, exchange: Document) -> None:
    cluster.build(gpus=16)
    since = cluster.client.list("Workload", cluster.namespace)["metadata"]["resourceVersion"]
    seen: list[list[str]] = []
    wanted = [sorted(step) for step in exchange["told"]]
    reader = threading.Thread(
        target=lambda: seen.extend(told(cluster.client, cluster.namespace, since, len(wanted)))
    )
    with Kueue(cluster.client):
        eventually(cluster.is_open)
        reader.start()
        cluster.client.create(make_workload(cluster.namespace))
        for said in exchange["said"]:
            eventually(partial(cluster.has, "Admitted") if "when" in said else cluster.is_asked)
            cluster.say(said["state"], **said.get("with", {}))
        reader.join(timeout=25)
    assert seen == wanted


def test_a_queue_whose_check_nobody_serves_gives_no_quota(cluster: Cluster) -> None:
    cluster.build()
    cluster.activate(False)
    with Kueue(cluster.client):
        cluster.client.create(make_workload(cluster.namespace))
        held = eventually(lambda: states.condition(cluster.workload(), "QuotaReserved"))
        assert (held["status"], held["reason"]) == ("False", "Inadmissible")
        assert held["message"] == f"ClusterQueue {cluster.queue} is inactive"
        cluster.activate(True)
        eventually(lambda: cluster.has("QuotaReserved"))


def test_a_retry_gives_quota_to_who_waits(cluster: Cluster) -> None:
    cluster.build(gpus=16)
    with Kueue(cluster.client):
        cluster.client.create(make_workload(cluster.namespace, "first", priority=1))
        eventually(lambda: cluster.has("QuotaReserved", "first"))
        cluster.client.create(make_workload(cluster.namespace, "second"))
        why = eventually(lambda: states.condition(cluster.workload("second"), "QuotaReserved"))
        assert "16 more needed" in why["message"]
        cluster.say("Retry", "first", requeueAfterSeconds=2, message="short of 40 kW")
        eventually(lambda: cluster.has("QuotaReserved", "second"))
        assert not cluster.has("QuotaReserved", "first")
        (check,) = states.checks(cluster.workload("first"))
        assert (check["state"], check["retryCount"]) == ("Pending", 1)
        evicted = states.condition(cluster.workload("first"), "Evicted")
        assert evicted is not None
        assert "short of 40 kW" in evicted["message"]
        cluster.say("Ready", "second")
        eventually(lambda: cluster.has("Admitted", "second"))
        states_of = cluster.workload("second")
        states.finish(states_of, "Succeeded", "", states.moment_of(_NOW))
        cluster.client.update(states_of, "status")
        eventually(lambda: cluster.has("QuotaReserved", "first"))


def test_by_the_letter_of_the_source_a_retry_keeps_quota_until_it_is_due(cluster: Cluster) -> None:
    cluster.build(gpus=16)
    with Kueue(cluster.client, evicts_at_once=False):
        cluster.client.create(make_workload(cluster.namespace))
        eventually(lambda: cluster.has("QuotaReserved"))
        begin = time.monotonic()
        cluster.say("Retry", requeueAfterSeconds=3)
        eventually(lambda: states.requeue_at(cluster.workload()))
        assert cluster.has("QuotaReserved")
        eventually(lambda: cluster.state() == "Pending")
        assert time.monotonic() - begin > 1.5


def test_one_of_higher_priority_preempts(cluster: Cluster) -> None:
    cluster.build(gpus=16, preemption={"withinClusterQueue": "LowerPriority"})
    with Kueue(cluster.client):
        cluster.client.create(make_workload(cluster.namespace, "low"))
        eventually(lambda: cluster.state("low") == "Pending")
        cluster.say("Ready", "low")
        eventually(lambda: cluster.has("Admitted", "low"))
        cluster.client.create(make_workload(cluster.namespace, "high", priority=5))
        eventually(lambda: cluster.has("QuotaReserved", "high"))
        low = cluster.workload("low")
        assert states.condition(low, "Preempted")["reason"] == "InClusterQueue"  # type: ignore[index]
        assert states.condition(low, "Requeued")["status"] == "True"  # type: ignore[index]
        assert not states.holds(low, "Admitted")


def test_a_job_runs_where_its_check_placed_it(cluster: Cluster) -> None:
    cluster.build(nodes=4)
    name = ""
    with Kueue(cluster.client):
        job = cluster.client.create(make_job(cluster.namespace, run_s=1))
        name = workload_name(job)
        eventually(lambda: _is_there(cluster, name) and cluster.has("QuotaReserved", name))
        update = {
            "name": "main",
            "nodeSelector": {"rack": "r1", "test": cluster.mark},
            "annotations": {"headroom/lease": "7"},
            "tolerations": [{"key": "headroom", "operator": "Exists"}],
        }
        cluster.say("Ready", name, podSetUpdates=[update])
        eventually(
            lambda: _pods(cluster, "Running") == {f"n1-{cluster.mark}", f"n3-{cluster.mark}"}
        )
        pod = cluster.client.list("Pod", cluster.namespace)["items"][0]
        assert pod["metadata"]["annotations"]["headroom/lease"] == "7"
        eventually(lambda: cluster.has("Finished", name))
        assert states.condition(cluster.workload(name), "Finished")["reason"] == "Succeeded"  # type: ignore[index]


def _is_there(cluster: Cluster, name: str) -> bool:
    try:
        cluster.workload(name)
    except Refused:
        return False
    return True


def _pods(cluster: Cluster, phase: str) -> set[str]:
    pods = cluster.client.list("Pod", cluster.namespace)["items"]
    return {p["spec"].get("nodeName", "") for p in pods if p["status"]["phase"] == phase}


def test_an_eviction_stops_a_job_and_puts_its_template_back(cluster: Cluster) -> None:
    cluster.build(nodes=2)
    with Kueue(cluster.client):
        job = cluster.client.create(make_job(cluster.namespace))
        name = workload_name(job)
        eventually(lambda: _is_there(cluster, name) and cluster.has("QuotaReserved", name))
        cluster.say("Ready", name, podSetUpdates=[{"name": "main", "labels": {"a": "b"}}])
        eventually(lambda: len(_pods(cluster, "Running")) == 2)
        cluster.say("Retry", name, requeueAfterSeconds=60, message="feed A is lost")
        eventually(lambda: not cluster.has("QuotaReserved", name))
        assert not cluster.client.list("Pod", cluster.namespace)["items"]
        stopped = cluster.client.get("Job", "j", cluster.namespace)
        assert stopped["spec"]["suspend"] is True
        assert "labels" not in stopped["spec"]["template"]["metadata"]


def test_an_update_that_contradicts_the_flavor_fails_for_good(cluster: Cluster) -> None:
    cluster.build(nodes=2)
    cluster.client.patch("ResourceFlavor", cluster.flavor, {"spec": {"nodeLabels": {"rack": "r0"}}})
    with Kueue(cluster.client):
        job = cluster.client.create(make_job(cluster.namespace))
        name = workload_name(job)
        eventually(lambda: _is_there(cluster, name) and cluster.has("QuotaReserved", name))
        cluster.say("Ready", name, podSetUpdates=[{"name": "main", "nodeSelector": {"rack": "r1"}}])
        eventually(lambda: cluster.has("Finished", name))
        finished = states.condition(cluster.workload(name), "Finished")
        assert finished is not None
        assert finished["reason"] == "FailedToStart"
        assert "conflict for nodeSelector" in finished["message"]
        assert not cluster.client.list("Pod", cluster.namespace)["items"]


def test_it_goes_on_after_the_server_died_and_forgot_events(api_server: ApiServer) -> None:
    cluster = Cluster(Client(api_server.kubeconfig()))
    cluster.build(gpus=16)
    with Kueue(cluster.client):
        cluster.client.create(make_workload(cluster.namespace))
        eventually(lambda: cluster.has("QuotaReserved"))
        api_server.stop()
        api_server.store.compact()
        time.sleep(0.2)
        api_server.start()
        cluster.say("Ready")
        eventually(lambda: cluster.has("Admitted"))
