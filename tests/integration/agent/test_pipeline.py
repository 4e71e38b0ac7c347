"""A pipeline of seven phases, on a real server, real agents and real processes.

Phases without GPUs stand on a machine that has none, those with GPUs on one with eight. Each takes
the artifact that the one before it has made, by its digest; the last one promotes. Then the same
with a failure in each phase in turn, and with promotions that are refused: copies that lag or
differ, a matrix that has not passed, bytes that were changed.
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
from headroom.work.inputs import digest_of
from lab.matrix.result import Verdict
from tests.builders.matrices import result_of
from tests.integration.agent.processes import wait_for
from tests.integration.faults.agents import RealAgent, enroll
from tests.standin.nvml import StandIn

WITH_GPUS, WITHOUT, ELSEWHERE = "fault-n1", "fault-n2", "fault-n3"
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
  - name: mirror
    racks:
      - name: M01
        budget_w: 90000
        nodes:
          - {{name: {ELSEWHERE}, model: epyc}}
"""
#: Goes on from what it takes, and leaves what the next one takes.
_WORKS = """
set -e
test "$HEADROOM_PHASE" != "$FAILS_IN"
test "$HEADROOM_PHASE" != "$LEAVES_NOTHING" || exit 0
if [ -n "$TAKES" ]; then cat "${!TAKES}"; fi > "$AFTER"
gpus=${CUDA_VISIBLE_DEVICES:-none}
echo "$HEADROOM_PHASE: cores ${HEADROOM_CORES:-none}, GPUs $gpus" >> "$AFTER"
"""
#: Copies a file, adds what it is told to, and ends once it is let go.
_COPIES = """
set -e
{ cat "$FROM"; printf %s "$MORE"; } > "$AFTER"
until [ -e "$GO" ]; do sleep 0.1; done
"""
#: One who asks may do so ten times a second.
_POLL_S = 0.2
_PINNED = {"image": "p@sha256:" + "0" * 64, "code_revision": "0" * 40, "data": {}}


class Scene:
    """A machine with GPUs, one without, one at another site, and what pipelines leave."""

    def __init__(self, stack: Stack, agents: list[RealAgent], folder: Path) -> None:
        self.agents, self.folder = agents, folder
        self.client = Client(stack.url, stack.credential("operator_token"), timeout_s=30)
        self.client.post("/api/v1/projects", {"name": "pipelines"})
        self.client.post_yaml("/api/v1/fleet/apply", _INVENTORY)

    def submit(
        self,
        name: str,
        *,
        matrix: bytes = result_of(Verdict.PASSED, Verdict.PASSED),
        more: str | None = None,
        **env: str,
    ) -> Path:
        """Submit a pipeline, and return its folder.

        ``matrix``: the result by which it promotes. ``more``: it is wanted at the mirror, too, and
        what copies it there adds this, and ends once there is a file "go".
        """
        folder = self.folder / name
        folder.mkdir()
        (folder / "result.json").write_bytes(matrix)
        phases = [self._phase(at, folder, env) for at in range(len(PHASES))]
        if more is not None:
            package = phases[list(PHASES).index("package")]
            package["outputs"][0]["copies"] = ["mirror"]
            phases.append(self._copy(folder, more))
        self.client.post(
            "/api/v1/jobs",
            {
                "name": name, "project": "pipelines", "class": "low-power-experimentation",
                "phases": phases,
            },
        )  # fmt: skip
        return folder

    def _phase(self, at: int, folder: Path, env: dict[str, str]) -> dict[str, Any]:
        names = list(PHASES)
        name, before = names[at], names[at - 1] if at else ""
        phase: dict[str, Any] = {
            "name": name, "needs": [before] if before else [], "walltime_s": 600,
            "gang": {"gpus": 2} if PHASES[name] else {"gpus": 0, "cores": 2},
            "locality": {"sites": ["faults"]},
            "command": ["/bin/bash", "-c", _WORKS],
            "env": {
                "AFTER": str(folder / name), "FAILS_IN": "", "LEAVES_NOTHING": "", **env,
                "TAKES": f"HEADROOM_ARTIFACT_{before.upper()}_OUT" if before else "",
            },
            "outputs": [{"name": "out", "path": str(folder / name)}],
            "inputs": [{"phase": before, "output": "out"}] if before else [],
            "artifacts": _PINNED,
        }  # fmt: skip
        if name == "evaluate":
            result = {"name": "matrix", "path": str(folder / "result.json"), "matrix": True}
            phase["outputs"].append(result)
        if name == "promote":
            phase["promotion"] = {"matrix": [{"phase": "evaluate", "output": "matrix"}]}
        return phase

    def _copy(self, folder: Path, more: str) -> dict[str, Any]:
        made = {"phase": "package", "output": "out"}
        return {
            "name": "copy", "needs": ["package"], "walltime_s": 600,
            "gang": {"gpus": 0, "cores": 1}, "locality": {"sites": ["mirror"]},
            "command": ["/bin/bash", "-c", _COPIES],
            "env": {
                "GO": str(folder / "go"), "FROM": str(folder / "package"), "MORE": more,
                "AFTER": str(folder / "copy"),
            },
            "outputs": [{"name": "out", "path": str(folder / "copy"), "copy_of": made}],
            "artifacts": _PINNED,
        }  # fmt: skip

    def phases(self, name: str) -> dict[str, dict[str, Any]]:
        found = self.client.get(f"/api/v1/jobs/{name}")["phases"]
        return {each["name"]: each for each in found}

    def is_over(self, name: str) -> bool:
        return bool(self.client.get(f"/api/v1/jobs/{name}")["state"] in ("succeeded", "failed"))

    def refusal(self, name: str, said: str) -> dict[str, Any]:
        """Wait until the promotion of a pipeline is refused so, and return the reason."""
        found: list[dict[str, Any]] = []

        def is_refused() -> bool:
            for phase in self.client.get(f"/api/v1/jobs/{name}/explain")["phases"]:
                if phase["phase"] == "promote":
                    found[:] = [each for each in phase["reasons"] if said in each["sentence"]]
            return bool(found)

        wait_for(is_refused, 300.0, every_s=_POLL_S)
        return found[0]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("pipelines")
    with running() as stack:
        token_file = folder / "operator-token"
        token_file.write_text(stack.credential("operator_token"))
        agents = enroll(stack, token_file, folder, 3, more=("--allow-jobs", "--shared-user"))
        for agent in agents[1:]:
            agent.machine = StandIn(agent.folder, gpus=0)
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
    folder = scene.submit("whole")
    wait_for(partial(scene.is_over, "whole"), 300.0, every_s=_POLL_S)
    for name, phase in scene.phases("whole").items():
        assert phase["state"] == "succeeded", (name, phase)
        (attempt,) = phase["attempts"]
        node = WITH_GPUS if PHASES[name] else WITHOUT
        assert attempt["placement"]["nodes"] == [node]
        *_, said = (folder / name).read_text().splitlines()
        assert ("cores none" in said) is PHASES[name], said
        assert ("GPUs none" in said) is not PHASES[name], said
    # Each went on from what the one before it had made.
    promoted = (folder / "promote").read_text().splitlines()
    assert [line.split(":")[0] for line in promoted] == list(PHASES)
    made = scene.client.get("/api/v1/jobs/whole/artifacts")["artifacts"]
    for each in made:
        assert each["digest"] == digest_of(Path(each["path"])), each
    assert [each["cells"]["passed"] for each in made if each["cells"]] == [2]


@pytest.mark.slow
def test_a_failure_in_each_phase_in_turn_ends_it_there(scene: Scene) -> None:
    for fails_in in PHASES:
        scene.submit(f"no-{fails_in}", FAILS_IN=fails_in)
    scene.submit("void-train", LEAVES_NOTHING="train")
    names = list(PHASES)
    for job in (*(f"no-{name}" for name in PHASES), "void-train"):
        wait_for(partial(scene.is_over, job), 600.0, every_s=_POLL_S)
        at = names.index(job.split("-")[1])
        states = [phase["state"] for phase in scene.phases(job).values()]
        assert states[:at] == ["succeeded"] * at, (job, states)
        assert states[at] == "failed"
        assert all(state == "cancelled" for state in states[at + 1 :]), (job, states)
        left = {each.name for each in (scene.folder / job).iterdir()}
        assert left == {*names[:at], "result.json"}
        made = scene.client.get(f"/api/v1/jobs/{job}/artifacts")["artifacts"]
        assert {each["phase"] for each in made if each["digest"]} == set(names[:at])
    (attempt,) = scene.phases("void-train")["train"]["attempts"]
    assert "output out: " in attempt["why"]


@pytest.mark.slow
def test_a_promotion_is_refused_while_a_copy_lags(scene: Scene) -> None:
    folder = scene.submit("lags", more="")
    reason = scene.refusal("lags", "at mirror is missing")
    size = (folder / "package").stat().st_size
    assert (reason["token"], reason["need"], reason["have"]) == ("ArtifactPending", 2.0, 1.0)
    assert reason["sentence"] == (
        "promotes only what has its copies: that of artifact out of phase package at mirror is"
        f" missing; 1 of 2 places have theirs, {size} bytes lag"
    )
    assert not (folder / "promote").exists()
    (folder / "go").touch()
    wait_for(partial(scene.is_over, "lags"), 300.0, every_s=_POLL_S)
    phases = scene.phases("lags")
    assert {each["state"] for each in phases.values()} == {"succeeded"}
    (copied,) = phases["copy"]["attempts"]
    assert copied["placement"]["nodes"] == [ELSEWHERE]


@pytest.mark.slow
def test_a_promotion_is_refused_while_a_copy_differs(scene: Scene) -> None:
    folder = scene.submit("differs", more="one byte too many")
    (folder / "go").touch()
    reason = scene.refusal("differs", "at mirror differs")
    assert (reason["token"], reason["need"], reason["have"]) == ("ArtifactPending", 2.0, 1.0)
    (copy,) = reason["evidence"]["copies"]
    assert copy["wanted"] == digest_of(folder / "package")
    assert copy["found"] == digest_of(folder / "copy")
    assert not (folder / "promote").exists()
    scene.client.post("/api/v1/jobs/differs/cancel", {})


@pytest.mark.slow
def test_a_promotion_is_refused_by_a_matrix_that_has_not_passed(scene: Scene) -> None:
    verdicts = (Verdict.PASSED, Verdict.FAILED, Verdict.NOT_MEASURED, Verdict.NOT_RUN)
    folder = scene.submit("unfit", matrix=result_of(*verdicts))
    reason = scene.refusal("unfit", "cells passed")
    assert (reason["token"], reason["need"], reason["have"]) == ("DependencyNeverMet", 3.0, 1.0)
    assert "1 of 3 cells passed, 1 failed, 1 could not be measured" in reason["sentence"]
    assert not (folder / "promote").exists()
    scene.client.post("/api/v1/jobs/unfit/cancel", {})


@pytest.mark.slow
def test_a_promotion_of_bytes_that_were_changed_does_not_begin(scene: Scene) -> None:
    folder = scene.submit("changed", more="")
    scene.refusal("changed", "at mirror is missing")
    recorded = digest_of(folder / "package")
    wait_for(lambda: (folder / "copy").exists() and digest_of(folder / "copy") == recorded)
    # The copy is as it was recorded. What is promoted is not any more.
    with (folder / "package").open("a") as package:
        package.write("changed")
    (folder / "go").touch()
    wait_for(partial(scene.is_over, "changed"), 300.0, every_s=_POLL_S)
    phases = scene.phases("changed")
    assert (phases["copy"]["state"], phases["promote"]["state"]) == ("succeeded", "failed")
    (attempt,) = phases["promote"]["attempts"]
    assert attempt["exit_code"] == 126
    found = digest_of(folder / "package")
    assert (
        f"input artifact/package/out differs: declared {recorded}, found {found}"
        in (attempt["why"])
    )
    assert not (folder / "promote").exists()
