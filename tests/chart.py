"""The Helm chart as Helm renders it, for tests that look at what comes of it."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
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

SERVER = {"serverUrl": "https://headroom.example.com"}
AGENT = {**SERVER, "agent.enabled": "true", "agent.tokensSecret": "tokens"}
KUEUE = {
    **SERVER,
    "kueue.enabled": "true",
    "kueue.cluster": "oslo-k8s",
    "kueue.tokenSecret": "kueue",
}
MONITOR = {"serviceMonitor.enabled": "true", "serviceMonitor.labels.release": "prometheus"}
#: All that a release can hold.
ALL = tuple({**INGRESS, **AGENT, **KUEUE, **MONITOR}.items())
#: Kinds of which Kubernetes itself knows nothing.
OTHERS = ("ServiceMonitor", "CustomResourceDefinition")


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
