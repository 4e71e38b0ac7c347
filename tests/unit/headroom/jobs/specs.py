"""Job specifications for tests."""

from __future__ import annotations

import copy
from typing import Any

DIGEST = "sha256:" + "0123456789abcdef" * 4
REVISION = "0123456789abcdef0123456789abcdef01234567"

ARTIFACTS = {"image": f"registry.example/llm@{DIGEST}", "code_revision": REVISION, "data": {}}


def make_phase(name: str = "train", **given: Any) -> dict[str, Any]:
    return {"name": name, "gang": {"gpus": 8}, "walltime_s": 3600, **given}


def make_spec(*phases: dict[str, Any], **given: Any) -> dict[str, Any]:
    values = {
        "project": "vision",
        "class": "low-power-experimentation",
        "phases": list(phases) or [make_phase()],
    }
    return copy.deepcopy({**values, **given})
