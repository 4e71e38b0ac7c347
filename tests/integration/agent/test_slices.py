"""Jobs on MIG slices: a real server, a real agent, and a stand-in of NVML that shows the slices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest

from bench.stack import Stack, running
from headroom.client import Client
from headroom.errors import Refused
from tests.integration.agent.processes import wait_for
from tests.integration.faults.agents import RealAgent, enroll

MODEL = "NVIDIA H100 80GB HBM3"
NODE = "fault-n1"
_SAYS = "echo has $CUDA_VISIBLE_DEVICES $HEADROOM_SLICES; sleep 600"
SLICES = ["3g.40gb", "1g.10gb", "1g.10gb"]


_INVENTORY = f"""
hardware_models:
  - {{name: {MODEL}, kind: gpu, rated_w: 700, idle_w: 70, slowdown_c: 90, sm_max_mhz: 1980}}
sites:
  - name: faults
    racks:
      - name: F01
        budget_w: 90000
        nodes:
          - name: {NODE}
            gpus:
              - {{index: 0, model: {MODEL}, slices: [{", ".join(SLICES)}]}}
""" + "".join(f"              - {{index: {i}, model: {MODEL}}}\n" for i in range(1, 8))


class Scene:
    """One machine with eight GPUs, of which the first is split."""

    def __init__(self, stack: Stack, agent: RealAgent) -> None:
        self.stack, self.agent = stack, agent
        self.client = Client(stack.url, stack.credential("operator_token"), timeout_s=30)
        self.client.post("/api/v1/projects", {"name": "slices"})
        self._split()

    def _split(self) -> None:
        """State the first GPU as split, and have NVML show it so."""
        self.client.post_yaml("/api/v1/fleet/apply", _INVENTORY)
        self.agent.machine.gpu(util=0, power_mw=70_000)
        self.agent.machine.gpu(0, mig=1, instances="0 0 0", profiles=" ".join(SLICES))

    def submit(self, name: str, profile: str | None, gpus: int = 1) -> None:
        gang: dict[str, Any] = {"gpus": gpus} | ({"slice": profile} if profile else {})
        phase = {
            "name": "run", "gang": gang, "walltime_s": 900,
            "command": ["/bin/sh", "-c", _SAYS],
            "artifacts": {
                "image": "s@sha256:" + "0" * 64, "code_revision": "0" * 40, "data": {},
            },
        }  # fmt: skip
        spec = {
            "name": name, "project": "slices", "class": "low-power-experimentation",
            "phases": [phase],
        }  # fmt: skip
        self.client.post("/api/v1/jobs", spec)

    def job(self, name: str) -> dict[str, Any]:
        return dict(self.client.get(f"/api/v1/jobs/{name}"))

    def runs(self, name: str) -> bool:
        return bool(self.job(name)["phases"][0]["state"] == "running")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("slices")
    with running() as stack:
        token_file = folder / "operator-token"
        token_file.write_text(stack.credential("operator_token"))
        (agent,) = enroll(stack, token_file, folder, 1, more=("--allow-jobs", "--shared-user"))
        made = Scene(stack, agent)
        try:
            agent.start()
            yield made
        finally:
            agent.close()
            made.client.close()
            for process in psutil.process_iter(["cmdline"]):
                if str(folder) in " ".join(process.info["cmdline"] or ()):
                    process.kill()


@pytest.mark.slow
def test_jobs_on_slices(scene: Scene) -> None:
    """One stack for all of it: to start one takes longer than all that is tried on it."""
    _each_gets_a_slice_of_its_own(scene)
    _whole_gpus_are_those_that_are_not_split(scene)
    _who_finds_none_is_told_so_and_what_starts_it(scene)
    _what_has_no_meaning_on_a_slice_is_refused(scene)


def _each_gets_a_slice_of_its_own(scene: Scene) -> None:
    for name in ("first", "second"):
        scene.submit(name, "1g.10gb")
        wait_for(partial(scene.runs, name), 120.0)
    uuid = "MIG-00000000-0000-0000-0000-000000000000"
    seen = set()
    for name in ("first", "second"):
        (attempt,) = scene.job(name)["phases"][0]["attempts"]
        (held,) = attempt["placement"]["slices"][NODE]
        assert attempt["placement"]["gpus"] == {NODE: [0]}
        assert held["profile"] == "1g.10gb"
        seen.add(held["place"])
        expected = f"has {uuid}-{held['place']} 0:1g.10gb"
        wait_for(partial(_has_said, scene, name, expected), 60.0)
    assert seen == {1, 2}


def _has_said(scene: Scene, name: str, text: str) -> bool:
    return text in str(scene.client.get(f"/api/v1/jobs/{name}/logs"))


def _whole_gpus_are_those_that_are_not_split(scene: Scene) -> None:
    scene.submit("whole", None, gpus=7)
    wait_for(lambda: scene.runs("whole"), 120.0)
    (attempt,) = scene.job("whole")["phases"][0]["attempts"]
    assert attempt["placement"]["gpus"] == {NODE: [1, 2, 3, 4, 5, 6, 7]}
    assert "slices" not in attempt["placement"]


def _who_finds_none_is_told_so_and_what_starts_it(scene: Scene) -> None:
    scene.submit("third", "1g.10gb")
    wait_for(lambda: "slice" in str(scene.client.get("/api/v1/jobs/third/explain")), 60.0)
    told = scene.client.get("/api/v1/jobs/third/explain")
    (phase,) = told["phases"]
    reason = phase["reasons"][0]
    assert (reason["token"], reason["unit"]) == ("GpuShortage", "slices")
    assert (reason["need"], reason["have"], reason["short"]) == (1.0, 0.0, 1.0)
    ways = [each for each in phase["counterfactuals"] if each["change"] == {"slice": "3g.40gb"}]
    assert re.match(r"starts now as 3g\.40gb", ways[0]["sentence"])
    scene.client.post("/api/v1/jobs/third/amend", {"phase": "run", "slice": "3g.40gb"})
    wait_for(lambda: scene.runs("third"), 120.0)
    scene.client.post("/api/v1/jobs/third/cancel", {"why": "it was seen"})


def _what_has_no_meaning_on_a_slice_is_refused(scene: Scene) -> None:
    for profile, gpus, field in (
        ("1g.10gb", 2, "phases[0].gang.gpus"),
        ("0.5", 1, "phases[0].gang.slice"),
    ):
        with pytest.raises(Refused) as refused:
            scene.submit("refused", profile, gpus)
        assert refused.value.error.field == field
