"""What the chart lets the bridge to Kueue do, as a cluster would read it."""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from tests.chart import CHART, HELM, KUEUE, helm
from tests.kubernetes.server.access import Rule, rules_of


@functools.cache
def of_bridge(namespace: str, lease: str) -> tuple[Rule, ...] | None:
    """Return the rules of a bridge in a namespace; None, which is everything, without Helm."""
    if not Path(HELM).exists():
        return None
    release = lease.removesuffix("-kueue")
    values = {"image.repository": "registry.example/headroom", "server.enabled": "false", **KUEUE}
    done = helm("template", release, str(CHART), f"--namespace={namespace}", **values)
    assert done.returncode == 0, done.stderr
    roles = [made for made in yaml.safe_load_all(done.stdout) if made and "rules" in made]
    return tuple(
        rule
        for role in roles
        for rule in rules_of(role, namespace if role["kind"] == "Role" else "")
    )
