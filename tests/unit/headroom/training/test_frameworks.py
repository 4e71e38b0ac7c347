"""The callbacks for Lightning and for the Trainer of Hugging Face, in the real ones."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headroom.training.reports import RankReport

#: With which versions they were tried.
LIBRARIES = {"lightning": ("lightning", "2.6.6"), "huggingface": ("transformers", "5.23.0")}


@pytest.fixture(params=sorted(LIBRARIES))
def framework(request: pytest.FixtureRequest) -> str:
    name, version = LIBRARIES[request.param]
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}: pip install {name}=={version}")
    return str(request.param)


def trained(framework: str, what: str, folder: Path) -> tuple[dict[str, Any], list[RankReport]]:
    """Train as a job that is told ``what``; return what came of it, and its reports."""
    (folder / "saved").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[4]),
        "HEADROOM_DIRECTIVES": str(folder / "told"),
        "HEADROOM_STATUS": str(folder / "status"),
        "HEADROOM_REPORTS": str(folder / "reports"),
        "HF_HUB_OFFLINE": "1",
    }
    script = Path(__file__).with_name("trained_by.py")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(folder / "reports"))
        ear.setblocking(False)
        done = subprocess.run(
            [sys.executable, str(script), framework, what, str(folder / "saved")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        reports = []
        while True:
            try:
                reports.append(msgspec.msgpack.decode(ear.recv(65536), type=RankReport))
            except BlockingIOError:
                return json.loads(done.stdout.splitlines()[-1]), reports


def test_a_checkpoint_is_written_after_a_step_and_training_goes_on(
    framework: str, tmp_path: Path
) -> None:
    made, reports = trained(framework, "checkpoint", tmp_path)
    assert (made["steps"], made["left"]) == (30, False)
    said = made["said"]
    assert said["done"] == 1
    assert said["checkpoint_at"] is not None
    assert 10 < said["step"] < 30
    assert f"{said['step']}" in " ".join(made["files"])
    assert sum(report.steps for report in reports) == 30
    assert sum(report.samples for report in reports) == 60
    assert reports[-1].loss is not None


def test_a_pause_stands_still_at_a_step_and_goes_on(framework: str, tmp_path: Path) -> None:
    made, reports = trained(framework, "pause", tmp_path)
    assert made["steps"] == 30
    assert made["said"]["done"] == 2
    assert sum(report.sections.get("pause", 0.0) for report in reports) > 0.5


def test_who_has_to_leave_saves_first(framework: str, tmp_path: Path) -> None:
    made, _ = trained(framework, "leave", tmp_path)
    assert made["left"]
    assert 10 < made["steps"] < 30
    assert f"{made['steps']}" in " ".join(made["files"])
