"""The pure cores of policies and admission need no settings, no database and no server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
MODULES = (
    "policies.rules.engine",
    "policies.rules.effects",
    "policies.rules.places",
    "policies.rules.builtin",
    "policies.headroom.evaluate",
    "policies.headroom.past",
    "policies.leases.book",
    "policies.leases.memory",
    "policies.limiting",
    "policies.restrictions.strictest",
    "policies.restrictions.book",
    "policies.restrictions.breakers",
    "policies.restrictions.memory",
    "policies.playbooks.builtin",
    "policies.playbooks.machine",
    "policies.playbooks.performing",
    "policies.playbooks.view",
    "admission.core.cycle.decide",
    "admission.core.response.fallback",
    "admission.core.allocation.allocations",
    "admission.core.allocation.reservation",
    "admission.core.response.respond",
    "admission.core.response.shedding",
    "admission.core.response.sites",
    "admission.core.allocation.watts",
    "lab.world",
)


def test_they_are_imported_without_settings() -> None:
    lines = [f"import {module}" for module in MODULES]
    lines += ["from django.conf import settings", "assert not settings.configured"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=REPOSITORY,
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
