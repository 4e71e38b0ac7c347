"""A keeper in a job tells the agent of its machine, over the job's socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from headroom.agent.sources.training import TrainingSource
from headroom.checkpoints import Store, stage
from headroom.contracts import CheckpointReport
from headroom.training.reports import SOCKET
from tests.unit.headroom.checkpoints.builders import RUN, about, make_folder

_LIMIT_S = 120.0


def test_a_keeper_in_a_job_tells_its_agent_what_is_whole_where(tmp_path: Path) -> None:
    near, far, path = tmp_path / "near", tmp_path / "far", tmp_path / "reports"
    folder = make_folder(tmp_path / "folder", {"state": b"s" * 9000})
    stage(folder, Store.at(near), about(7, epoch=3))
    source = TrainingSource()
    source.listen("llama/train/3", path, os.getuid(), os.getgid())
    keeper = subprocess.Popen(
        [sys.executable, "-m", "headroom", "checkpoints", "keep", str(near), "--to", str(far),
         "--to-site", "oslo"],
        env={**os.environ, SOCKET: str(path)},
    )  # fmt: skip
    try:
        told = wait_until_there(source, keeper)
    finally:
        keeper.send_signal(signal.SIGTERM)
        keeper.wait(_LIMIT_S)
        source.close()
    assert keeper.returncode == 0
    (name,) = Store.at(far).names(RUN)
    for site in ("", "oslo"):
        report = told[site]
        assert (report.job, report.node) == ("llama/train", "n1")
        assert (report.store.run, report.store.lease_epoch) == (RUN, 3)
        assert report.store.checkpoint is not None
        assert (report.store.checkpoint.step, report.store.checkpoint.digest) == (7, name.digest)


def wait_until_there(
    source: TrainingSource, keeper: subprocess.Popen[bytes]
) -> dict[str, CheckpointReport]:
    """Return what was told last by site, once a checkpoint counts at the other one."""
    told: dict[str, CheckpointReport] = {}
    end = time.monotonic() + _LIMIT_S
    while "oslo" not in told or told["oslo"].store.checkpoint is None:
        assert time.monotonic() < end, told
        assert keeper.poll() is None
        told |= {each.store.site: each for each in source.take_stores("n1")}
        time.sleep(0.05)
    return told
