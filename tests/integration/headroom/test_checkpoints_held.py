"""A real keeper in a job: what the machine's agent writes beside it holds back what it sends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.agent.actuation import Reports
from headroom.agent.sources.training import TrainingSource
from headroom.checkpoints import About, Store, stage
from headroom.checkpoints.orders import boottime
from headroom.training.reports import SOCKET
from headroom.work.contract import ShipLimit
from headroom.work.folder import SHIPPING, Folder
from headroom.work.shipping import Shipping
from tests.integration.agent.processes import wait_for

ATTEMPT = "llama/train/1"


@pytest.fixture
def ears() -> Iterator[TrainingSource]:
    made = TrainingSource()
    yield made
    made.close()


def test_a_keeper_is_held_back_says_so_and_catches_up_with_the_latest(
    tmp_path: Path, ears: TrainingSource
) -> None:
    near, far, folder = tmp_path / "near", tmp_path / "far", Folder(tmp_path)
    ears.listen(ATTEMPT, folder.reports, os.getuid(), os.getgid())
    reports = Reports(lambda: 0.0)
    shipping = Shipping("n1", ears, reports, clock=boottime)

    def tell(*limits: ShipLimit) -> list[str]:
        shipping.pass_on({ATTEMPT: folder}, limits, server_now=0.0, asked_at=boottime())
        return [report.state.value for report in reports.take()]

    held = ShipLimit(attempt=ATTEMPT, id="restriction-1-ships", bytes_per_s=0.0, expires_at=600.0)
    tell(held)
    environment = {
        **os.environ,
        SOCKET: str(folder.reports),
        SHIPPING: str(folder.shipping),
    }
    command = [sys.executable, "-m", "headroom", "checkpoints", "keep", str(near), "--to", str(far)]
    keeper = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        for step in (1, 2, 3):
            state = tmp_path / f"state-{step}"
            state.mkdir()
            (state / "weights").write_bytes(os.urandom(50_000))
            stage(state, Store.at(near), About(run="r", step=step))
        wait_for(lambda: len(Store.at(near).names("r")) == 3)
        wait_for(lambda: ears.obeyed(ATTEMPT) == frozenset({"restriction-1-ships"}))
        assert tell(held) == ["applied"]
        assert Store.at(far).names("r") == []
        assert tell() == ["restored"]
        wait_for(lambda: [name.step for name in Store.at(far).names("r")] == [3])
        assert ears.obeyed(ATTEMPT) == frozenset()
    finally:
        keeper.kill()
        keeper.wait()
