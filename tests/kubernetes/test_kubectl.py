"""kubectl, which people use, works on the stand-in as on a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kubernetes import objects
from tests.kubernetes.client import Client
from tests.kubernetes.server import ApiServer

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")


@pytest.fixture
def client(api_server: ApiServer) -> Client:
    return Client(api_server.kubeconfig())


@pytest.fixture
def kubectl(api_server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(api_server.kubeconfig(), tmp_path)


class Kubectl:
    """Runs kubectl, and returns what it says."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def run(
        self, *words: str, given: objects.Document | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *words],
            input=yaml.safe_dump(given) if given else None,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def __call__(self, *words: str, given: objects.Document | None = None) -> str:
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_it_finds_the_kinds_of_kueue_by_their_short_names(kubectl: Kubectl, client: Client) -> None:
    client.create(objects.make_check("power"))
    assert "workloads" in kubectl("api-resources", "--api-group=kueue.x-k8s.io")
    assert "power" in kubectl("get", "ac")
    assert kubectl("get", "ac,cq,kwl", "--all-namespaces", "--output=name") == (
        "admissioncheck.kueue.x-k8s.io/power\n"
    )


def test_it_applies_and_is_told_of_conflicts(kubectl: Kubectl) -> None:
    check = objects.make_check("power")
    apply = ("apply", "--server-side", "--filename=-")
    assert "serverside-applied" in kubectl(*apply, "--field-manager=red", given=check)
    other = {**check, "spec": {"controllerName": "example.com/other"}}
    refused = kubectl.run(*apply, "--field-manager=blue", given=other)
    assert refused.returncode != 0
    assert 'conflict with "red": .spec.controllerName' in refused.stderr
    forced = kubectl.run(*apply, "--field-manager=blue", "--force-conflicts", given=other)
    assert "field is immutable" in forced.stderr


def test_it_applies_by_its_own_merge_too(kubectl: Kubectl) -> None:
    config = objects.make_config("default", x="1", y="1")
    assert "created" in kubectl("apply", "--filename=-", given=config)
    assert "unchanged" in kubectl("apply", "--filename=-", given=config)
    changed = objects.make_config("default", x="2")
    assert "configured" in kubectl("apply", "--filename=-", given=changed)
    assert json.loads(kubectl("get", "cm", "a", "--output=json"))["data"] == {"x": "2"}


def test_it_tells_of_unknown_fields(kubectl: Kubectl) -> None:
    wrong = objects.make_check("power")
    wrong["spec"]["colour"] = "red"
    refused = kubectl.run("apply", "--server-side", "--filename=-", given=wrong)
    assert 'unknown field "spec.colour"' in refused.stderr


def test_it_drains_a_node(kubectl: Kubectl, client: Client) -> None:
    client.create(objects.make_node("n1"))
    client.create(objects.make_pod("default", nodeName="n1", terminationGracePeriodSeconds=1))
    drain = kubectl.run("drain", "n1", "--force", "--timeout=2s")
    assert "evicting pod default/p" in drain.stdout + drain.stderr
    assert client.get("Node", "n1")["spec"]["unschedulable"] is True
    assert client.get("Pod", "p", "default")["metadata"]["deletionTimestamp"]
    kubectl("uncordon", "n1")
    assert "unschedulable" not in client.get("Node", "n1")["spec"]


def test_it_taints_labels_and_waits(kubectl: Kubectl, client: Client) -> None:
    client.create(objects.make_node("n1"))
    kubectl("taint", "node", "n1", "headroom.dev/restricted=feed-a:NoSchedule")
    kubectl("label", "node", "n1", "rack=r1")
    node = client.get("Node", "n1")
    assert node["metadata"]["labels"]["rack"] == "r1"
    assert node["spec"]["taints"][0]["key"] == "headroom.dev/restricted"
    assert "condition met" in kubectl("wait", "node/n1", "--for=condition=Ready", "--timeout=10s")


def test_it_describes_what_a_check_says(kubectl: Kubectl, client: Client) -> None:
    workload = client.create(objects.make_workload("default"))
    state = objects.make_check_state("power", "Retry", message="needs 80 kW, has 40 kW")
    client.apply(objects.status_of(workload, admissionChecks=[state]), "status")
    assert "needs 80 kW, has 40 kW" in kubectl("describe", "workload", "w")
