"""A pipeline of seven phases, on a real server, real agents and real processes.

Phases without GPUs stand on a machine that has none, those with GPUs on one with eight. Each takes
what the one before it has left. Then the same with a failure in each phase in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.stack import Stack, running
from headroom.client import Client
from tests.integration.agent.processes import wait_for
from tests.integration.faults.agents import RealAgent, enroll
from tests.standin.nvml import StandIn

WITH_GPUS, WITHOUT = "fault-n1", "fault-n2"
#: Each phase, and whether it takes GPUs.
PHASES = {
    "ingest": False, "preprocess": False, "features": False, "train": True, "evaluate": True,
    "package": False, "promote": False,
}  # fmt: skip
_INVENTORY = f"""
hardware_models:
  - {{name: fault-gpu, kind: gpu, rated_w: 700, idle_w: 70, slowdown_c: 90}}
  - {{name: epyc, kind: node, rated_w: 600, idle_w: 120, cores: 16, mem_bytes: 64000000000}}
sites:
  - name: faults
    racks:
      - name: F01
        budget_w: 90000
        nodes:
          - {{name: {WITH_GPUS}, gpus: {{model: fault-gpu, count: 8}}}}
          - {{name: {WITHOUT}, model: epyc}}
"""
#: It takes what the phase before has left, and leaves what the next one takes.
_WORKS = """
set -e
test -n "$BEFORE" && cat "$BEFORE"
test "$HEADROOM_PHASE" != "$FAILS_IN"
echo "cores ${HEADROOM_CORES:-none}, GPUs ${CUDA_VISIBLE_DEVICES:-none}" > "$AFTER"
"""


class Scene:
    """A machine with GPUs and one without, and what pipelines leave."""

    def __init__(self, stack: Stack, agents: list[RealAgent], folder: Path) -> None:
        self.agents, self.folder = agents, folder
        self.client = Client(stack.url, stack.credential("operator_token"), timeout_s=30)
        self.client.post("/api/v1/projects", {"name": "pipelines"})
        self.client.post_yaml("/api/v1/fleet/apply", _INVENTORY)

    def submit(self, name: str, fails_in: str = "") -> None:
        folder = self.folder / name
        folder.mkdir()
        spec = {
            "name": name, "project": "pipelines", "class": "low-power-experimentation",
            "phases": [self._phase(at, folder, fails_in) for at in range(len(PHASES))],
        }  # fmt: skip
        self.client.post("/api/v1/jobs", spec)

    def _phase(self, at: int, folder: Path, fails_in: str) -> dict[str, Any]:
        names = list(PHASES)
        name, before = names[at], names[at - 1] if at else ""
        return {
            "name": name, "needs": [before] if before else [], "walltime_s": 600,
            "gang": {"gpus": 2} if PHASES[name] else {"gpus": 0, "cores": 2},
            "command": ["/bin/bash", "-c", _WORKS],
            "env": {
                "AFTER": str(folder / name), "FAILS_IN": fails_in,
                "BEFORE": str(folder / before) if before else "/dev/null",
            },
            "artifacts": {
                "image": "p@sha256:" + "0" * 64, "code_revision": "0" * 40, "data": {},
            },
        }  # fmt: skip

    def phases(self, name: str) -> dict[str, dict[str, Any]]:
        found = self.client.get(f"/api/v1/jobs/{name}")["phases"]
        return {each["name"]: each for each in found}

    def is_over(self, name: str) -> bool:
        return bool(self.client.get(f"/api/v1/jobs/{name}")["state"] in ("succeeded", "failed"))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("pipelines")
    with running() as stack:
        token_file = folder / "operator-token"
        token_file.write_text(stack.credential("operator_token"))
        agents = enroll(stack, token_file, folder, 2, more=("--allow-jobs", "--shared-user"))
        agents[1].machine = StandIn(agents[1].folder, gpus=0)
        made = Scene(stack, agents, folder)
        try:
            for agent in agents:
                agent.machine.gpu(util=0, power_mw=70_000)
                agent.start()
            yield made
        finally:
            for agent in agents:
                agent.close()
            made.client.close()
            for process in psutil.process_iter(["cmdline"]):
                if str(folder) in " ".join(process.info["cmdline"] or ()):
                    process.kill()


@pytest.mark.slow
def test_a_pipeline_from_raw_data_to_a_promoted_model(scene: Scene) -> None:
    scene.submit("whole")
    wait_for(partial(scene.is_over, "whole"), 300.0)
    for name, phase in scene.phases("whole").items():
        assert phase["state"] == "succeeded", (name, phase)
        (attempt,) = phase["attempts"]
        node = WITH_GPUS if PHASES[name] else WITHOUT
        assert attempt["placement"]["nodes"] == [node]
        said = (scene.folder / "whole" / name).read_text()
        assert ("cores none" in said) is PHASES[name], said
        assert ("GPUs none" in said) is not PHASES[name], said


@pytest.mark.slow
def test_a_failure_in_each_phase_in_turn_ends_it_there(scene: Scene) -> None:
    for fails_in in PHASES:
        scene.submit(f"no-{fails_in}", fails_in)
    names = list(PHASES)
    for at, fails_in in enumerate(names):
        wait_for(partial(scene.is_over, f"no-{fails_in}"), 600.0)
        states = [phase["state"] for phase in scene.phases(f"no-{fails_in}").values()]
        assert states[:at] == ["succeeded"] * at, (fails_in, states)
        assert states[at] == "failed"
        assert all(state == "cancelled" for state in states[at + 1 :]), (fails_in, states)
        left = sorted(each.name for each in (scene.folder / f"no-{fails_in}").iterdir())
        assert left == sorted(names[:at])
