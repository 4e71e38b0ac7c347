"""The Helm chart: rendered by Helm itself, and held to the schemas of Kubernetes."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from config.process import PARTS

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "headroom"
HELM = shutil.which("helm") or str(REPOSITORY / "build" / "peers" / "helm")
NEEDED = {
    "image.repository": "registry.example/headroom",
    "existingSecret": "headroom",
    "cold.existingClaim": "cold",
}
INGRESS = {
    "ingress.enabled": "true",
    "ingress.host": "headroom.example.com",
    "ingress.tlsSecret": "tls",
}

pytestmark = pytest.mark.skipif(
    not Path(HELM).exists(), reason="no Helm: deploy/helm/ensure-helm.sh could not get it"
)


def helm(*words: str, **values: str) -> subprocess.CompletedProcess[str]:
    given = [f"--set={name}={value}" for name, value in values.items()]
    return subprocess.run(
        [HELM, *words, *given], capture_output=True, text=True, check=False, timeout=60
    )


@functools.cache
def rendered(*extra: tuple[str, str]) -> list[dict[str, Any]]:
    """Return what the chart makes of the values that it needs and these."""
    done = helm("template", "fleet", str(CHART), **{**NEEDED, **dict(extra)})
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def named(kind: str, *extra: tuple[str, str]) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in rendered(*extra) if m["kind"] == kind}


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in rendered():
        if manifest["kind"] in ("Deployment", "Job"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


def test_helm_finds_nothing_wrong_with_it() -> None:
    done = helm("lint", "--strict", str(CHART), **NEEDED)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("extra", [(), tuple(INGRESS.items()), (("web.replicas", "1"),)])
def test_kubernetes_knows_every_field(extra: tuple[tuple[str, str], ...]) -> None:
    for manifest in rendered(*extra):
        kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_all_parts_are_there() -> None:
    assert named("Deployment").keys() == {
        f"fleet-headroom-{part}" for part in ("web", "worker", "housekeeper", "beat")
    }
    assert named("Job").keys() == {"fleet-headroom-prepare"}


def test_no_pod_has_more_rights_than_it_needs() -> None:
    for name, pod in pods():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
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
    ],
)
def test_values_that_cannot_be_are_refused_and_named(
    wrong: dict[str, str], named_by_it: str
) -> None:
    done = helm("template", "fleet", str(CHART), **{**NEEDED, **wrong})
    assert done.returncode != 0
    assert named_by_it in done.stderr
