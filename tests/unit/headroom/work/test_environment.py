"""What a job finds, and what it does not; and the share of its machine that it may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom.work.cgroups import Cgroups, Share, files_of
from headroom.work.contract import Task
from headroom.work.environment import environment_of, port_of
from headroom.work.folder import Folder, JobStatus

FOLDER = Folder(Path("/state/attempts/00000001"))
OWN = {"PATH": "/bin", "HOME": "/home/jobs", "HEADROOM_TOKEN": "hra_secret", "AWS_KEY": "secret"}


def task(**given: object) -> Task:
    fields: dict[str, object] = {
        "job": "llama", "phase": "train", "number": 2, "command": ["true"], "rank": 1,
        "nodes": ["n1", "n2"], "gpus": [3, 1], "gpus_of_node": 8,
    }  # fmt: skip
    return Task(**{**fields, **given})  # type: ignore[arg-type]


def test_a_job_is_told_where_it_stands() -> None:
    found = environment_of("llama/train/2", task(power_cap_w=550.0), FOLDER, OWN)
    assert found["HEADROOM_ATTEMPT"] == "2"
    assert found["HEADROOM_ATTEMPT_KEY"] == "llama/train/2"
    assert (found["HEADROOM_RANK"], found["HEADROOM_NODES"]) == ("1", "n1,n2")
    assert found["CUDA_VISIBLE_DEVICES"] == found["HEADROOM_GPUS"] == "1,3"
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("n1", str(port_of("llama/train/2")))
    assert found["HEADROOM_POWER_CAP_W"] == "550"
    assert "HEADROOM_POWER_CAP_W" not in environment_of("a/b/1", task(), FOLDER, OWN)


def test_no_secret_of_the_agent_reaches_a_job() -> None:
    found = environment_of("llama/train/2", task(), FOLDER, OWN)
    assert "secret" not in " ".join(found.values())
    assert found["HOME"] == "/home/jobs"


def test_a_job_may_set_what_is_not_placed() -> None:
    env = {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "PATH": "/opt/bin"}
    found = environment_of("llama/train/2", task(env=env), FOLDER, OWN)
    assert (found["NCCL_DEBUG"], found["PATH"]) == ("INFO", "/opt/bin")
    assert found["CUDA_VISIBLE_DEVICES"] == "1,3"


def test_a_share_is_that_of_the_gpus() -> None:
    share = Share(0.5, 1000)
    assert files_of(share, unified=True)[""] == {
        "memory.max": "475", "cpu.weight": "50", "pids.max": "32768",
    }  # fmt: skip
    assert files_of(share, unified=False)["memory"] == {"memory.limit_in_bytes": "475"}
    assert files_of(Share(0.0001, 1000), unified=False)["cpu"] == {"cpu.shares": "2"}


def test_where_no_groups_can_be_made_jobs_run_without(tmp_path: Path) -> None:
    groups = Cgroups(tmp_path / "none", memory_bytes=1000)
    assert groups.make("00000001", 1.0) == []
    groups.remove("00000001")


def test_groups_are_made_with_their_limits_and_removed(tmp_path: Path) -> None:
    for controller in ("memory", "cpu", "pids"):
        (tmp_path / controller).mkdir()
    groups = Cgroups(tmp_path, memory_bytes=1000)
    made = groups.make("00000001", 0.5)
    assert made == [str(tmp_path / c / "headroom" / "00000001") for c in ("memory", "cpu", "pids")]
    assert Path(made[0], "memory.limit_in_bytes").read_text() == "475"


@pytest.mark.parametrize(
    "said", ["", "{", '{"done": -1}', '{"checkpoint_at": 1e300}', '{"checkpoint_at": "now"}']
)
def test_what_a_job_says_out_of_form_is_nothing(tmp_path: Path, said: str) -> None:
    folder = Folder(tmp_path)
    folder.work.mkdir()
    folder.status.write_text(said)
    assert folder.job_status() == JobStatus()
