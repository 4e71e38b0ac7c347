"""The Helm chart: rendered by Helm itself, and held to the schemas of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from config.process import PARTS
from headroom import cli
from headroom.agent import config
from tests.chart import (
    AGENT,
    ALL,
    CHART,
    HELM,
    INGRESS,
    KUEUE,
    MONITOR,
    NEEDED,
    OTHERS,
    helm,
    named,
    rendered,
)

pytestmark = pytest.mark.skipif(
    not Path(HELM).exists(), reason="no Helm: deploy/helm/ensure-helm.sh could not get it"
)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in rendered(*ALL):
        if manifest["kind"] in ("DaemonSet", "Deployment", "Job"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def test_helm_finds_nothing_wrong_with_it() -> None:
    done = helm("lint", "--strict", str(CHART), **NEEDED)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("extra", [(), tuple(INGRESS.items()), (("web.replicas", "1"),), ALL])
def test_kubernetes_knows_every_field(extra: tuple[tuple[str, str], ...]) -> None:
    for manifest in rendered(*extra):
        if manifest["kind"] not in OTHERS:
            kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_all_parts_are_there() -> None:
    assert named("Deployment").keys() == {
        f"fleet-headroom-{part}" for part in ("web", "worker", "housekeeper", "beat")
    }
    assert named("Job").keys() == {"fleet-headroom-prepare"}


def test_no_pod_has_more_rights_than_it_needs() -> None:
    for name, pod in pods():
        asks_the_cluster = name == "fleet-headroom-kueue"
        assert pod["automountServiceAccountToken"] is asks_the_cluster, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            rights = container["securityContext"]
            assert rights["readOnlyRootFilesystem"] is True, name
            assert rights["allowPrivilegeEscalation"] is False, name
            assert rights["capabilities"] == {"drop": ["ALL"]}, name


def test_the_tables_are_brought_up_to_date_before_any_pod_starts() -> None:
    job = named("Job")["fleet-headroom-prepare"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    settings = named("ConfigMap")["fleet-headroom"]["metadata"]["annotations"]
    assert int(settings["helm.sh/hook-weight"]) < int(
        job["metadata"]["annotations"]["helm.sh/hook-weight"]
    )


def test_the_owner_of_the_tables_is_known_to_the_job_that_migrates_alone() -> None:
    holders = [
        manifest["metadata"]["name"]
        for manifest in rendered(("ownerSecret", "owner"))
        if "DATABASE_OWNER_URL" in yaml.safe_dump(manifest)
    ]
    assert holders == ["fleet-headroom-prepare"]


def test_there_is_never_more_than_one_beat() -> None:
    beat = named("Deployment")["fleet-headroom-beat"]["spec"]
    assert (beat["replicas"], beat["strategy"]) == (1, {"type": "Recreate"})


def test_each_part_runs_the_command_of_that_name() -> None:
    for part in set(PARTS) - {"web"}:
        (container,) = named("Deployment")[f"fleet-headroom-{part}"]["spec"]["template"]["spec"][
            "containers"
        ]
        assert container["command"] == ["python", "-m", "config.process", part]


def test_the_web_server_is_probed_by_a_name_that_it_answers_to() -> None:
    (web,) = named("Deployment")["fleet-headroom-web"]["spec"]["template"]["spec"]["containers"]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        asked = web[probe]["httpGet"]
        assert asked["path"] == path
        assert asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_only_the_web_server_can_be_called() -> None:
    policies = named("NetworkPolicy")
    assert policies["fleet-headroom-web"]["spec"]["ingress"] == [{"ports": [{"port": "http"}]}]
    assert "ingress" not in policies["fleet-headroom-others"]["spec"]


def test_the_host_of_the_ingress_is_allowed_and_speaks_tls() -> None:
    extra = tuple(INGRESS.items())
    assert (
        named("ConfigMap", *extra)["fleet-headroom"]["data"]["ALLOWED_HOSTS"]
        == "headroom.example.com"
    )
    (ingress,) = named("Ingress", *extra).values()
    assert ingress["spec"]["tls"] == [{"hosts": ["headroom.example.com"], "secretName": "tls"}]


def test_a_digest_pins_the_image() -> None:
    digest = "sha256:" + "0" * 64
    (web,) = named("Deployment", ("image.digest", digest))["fleet-headroom-web"]["spec"][
        "template"
    ]["spec"]["containers"]
    assert web["image"] == f"registry.example/headroom:0.1.0@{digest}"


def _only(kind: str, name: str) -> dict[str, Any]:
    """Return the pod template's specification of one workload of the release."""
    found: dict[str, Any] = named(kind, *ALL)[name]["spec"]["template"]["spec"]
    return found


def test_a_release_without_the_server_has_agents_and_the_bridge_alone() -> None:
    done = helm(
        "template",
        "fleet",
        str(CHART),
        **{"image.repository": "registry.example/headroom", "server.enabled": "false"},
        **{**AGENT, **KUEUE},
    )
    assert done.returncode == 0, done.stderr
    found = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
    runs = {m["metadata"]["name"] for m in found if m["kind"] in ("DaemonSet", "Deployment", "Job")}
    assert runs == {"fleet-headroom-agent", "fleet-headroom-kueue"}
    assert not any(manifest["kind"] in ("Service", "Ingress") for manifest in found)


def test_the_agent_holds_the_token_of_its_node_alone() -> None:
    pod = _only("DaemonSet", "fleet-headroom-agent")
    (container,) = pod["containers"]
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "token")
    assert (mount["subPathExpr"], mount["readOnly"]) == ("$(NODE_NAME)", True)
    assert f"--token-file={mount['mountPath']}" in container["args"]
    (node,) = (e for e in container["env"] if e["name"] == "NODE_NAME")
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert "envFrom" not in container


def test_the_agent_can_take_its_token_from_a_file_of_its_node() -> None:
    values = {**AGENT, "agent.tokensSecret": "", "agent.tokenHostPath": "/etc/headroom/token"}
    pod = named("DaemonSet", *values.items())["fleet-headroom-agent"]["spec"]["template"]["spec"]
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "token")
    assert volume["hostPath"] == {"path": "/etc/headroom/token", "type": "File"}
    assert "subPathExpr" not in yaml.safe_dump(pod)


def test_the_agent_takes_the_arguments_and_the_configuration_that_it_is_given(
    tmp_path: Path,
) -> None:
    (container,) = _only("DaemonSet", "fleet-headroom-agent")["containers"]
    options = {word.partition("=")[0] for word in container["args"]}
    known = {option for parameter in cli.agent.params for option in parameter.opts}
    assert container["command"] == ["headroom", "agent"]
    assert options <= known
    written = tmp_path / "agent.toml"
    written.write_text(named("ConfigMap", *ALL)["fleet-headroom-agent"]["data"]["agent.toml"])
    assert config.load(written).kernel_log.enabled is False


def test_the_agent_reads_gpus_without_taking_any() -> None:
    extra = tuple({**AGENT, "agent.runtimeClassName": "nvidia"}.items())
    pod = named("DaemonSet", *extra)["fleet-headroom-agent"]["spec"]["template"]["spec"]
    assert pod["runtimeClassName"] == "nvidia"
    assert "nvidia.com/gpu" not in yaml.safe_dump(pod)


def test_the_agent_shares_the_network_of_its_node_only_where_it_is_told_to() -> None:
    assert "hostNetwork" not in _only("DaemonSet", "fleet-headroom-agent")
    extra = tuple({**AGENT, "agent.hostNetwork": "true"}.items())
    pod = named("DaemonSet", *extra)["fleet-headroom-agent"]["spec"]["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_the_bridge_leads_by_the_lease_that_it_may_write() -> None:
    (container,) = _only("Deployment", "fleet-headroom-kueue")["containers"]
    (lease,) = (w.partition("=")[2] for w in container["args"] if w.startswith("--lease="))
    rules = named("Role", *ALL)["fleet-headroom-kueue"]["rules"]
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in rules] == [
        (["create"], None),
        (["get", "update"], [lease]),
    ]


def test_one_bridge_stays_when_nodes_are_drained() -> None:
    budget = named("PodDisruptionBudget", *ALL)["fleet-headroom-kueue"]["spec"]
    assert budget["minAvailable"] == 1
    alone = tuple({**KUEUE, "kueue.replicas": "1"}.items())
    assert "fleet-headroom-kueue" not in named("PodDisruptionBudget", *alone)


def test_the_kind_of_the_parameters_comes_with_the_bridge_and_stays() -> None:
    (made,) = named("CustomResourceDefinition", *ALL).values()
    published = yaml.safe_load((CHART / "files" / "headroomchecks.yaml").read_text())
    assert made["spec"] == published["spec"]
    assert made["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    without = tuple({**KUEUE, "kueue.crd": "false"}.items())
    assert not named("CustomResourceDefinition", *without)


def test_prometheus_scrapes_each_web_pod_by_its_address_and_token() -> None:
    (monitor,) = named("ServiceMonitor", *ALL).values()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    service = named("Service", *ALL)["fleet-headroom"]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"] == {"name": "headroom", "key": "METRICS_TOKEN"}
    (web,) = _only("Deployment", "fleet-headroom-web")["containers"]
    env = {entry["name"]: entry.get("value") for entry in web["env"]}
    assert env["ALLOWED_HOSTS"] == "headroom.example.com,$(POD_IP),[$(POD_IP)]"


@pytest.mark.parametrize(
    ("wrong", "named_by_it"),
    [
        ({"existingSecret": ""}, "existingSecret"),
        ({"image.repository": ""}, "repository"),
        ({"image.tag": "latest"}, "tag"),
        ({"cold.existingClaim": ""}, "TELEMETRY_COLD_URL"),
        ({"settings.DATABASE_URL": "postgresql://x"}, "DATABASE_URL"),
        ({"settings.EMAIL_HOST_PASSWORD": "x"}, "EMAIL_HOST_PASSWORD"),
        ({"ingress.enabled": "true"}, "host"),
        ({"beat.replicas": "2"}, "replicas"),
        ({"web.replicas": "0"}, "replicas"),
        ({"misspelt": "1"}, "misspelt"),
        ({"server.enabled": "false"}, "Nothing would run"),
        ({**AGENT, "serverUrl": ""}, "serverUrl"),
        ({**AGENT, "serverUrl": "http://headroom.example.com"}, "serverUrl"),
        ({**AGENT, "agent.tokensSecret": ""}, "tokensSecret"),
        ({**AGENT, "agent.tokenHostPath": "/etc/headroom/token"}, "agent"),
        ({**AGENT, "agent.node": "n1"}, "node"),
        ({**AGENT, "agent.maxUnavailable": "0%"}, "maxUnavailable"),
        ({**KUEUE, "kueue.cluster": ""}, "cluster"),
        ({**KUEUE, "kueue.tokenSecret": ""}, "tokenSecret"),
        ({**KUEUE, "kueue.replicas": "0"}, "replicas"),
        ({**KUEUE, "server.enabled": "false", **MONITOR}, "serviceMonitor"),
    ],
)
def test_values_that_cannot_be_are_refused_and_named(
    wrong: dict[str, str], named_by_it: str
) -> None:
    done = helm("template", "fleet", str(CHART), **{**NEEDED, **wrong})
    assert done.returncode != 0
    assert named_by_it in done.stderr
