"""A job that is let go keeps the lease that it was let go under."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headroom.schedulers.contract import JobOrder, SchedulerOrders, SchedulerReport, WantedOfJob
from headroom.slurm.bridge import Bridge, BridgeSettings
from headroom.slurm.commands import Pinned, Slurm


class OneJob(Slurm):
    """A Slurm with one job, which is held for Headroom."""

    row: Mapping[str, Any] = {
        "job_id": 7, "job_state": "PENDING", "priority": 0, "admin_comment": "[headroom hold]",
        "tres_per_node": "gres:gpu:4", "node_count": 1, "submit_time": 100, "required_nodes": "",
    }  # fmt: skip

    def job_rows(self) -> list[bytes]:
        return [json.dumps(dict(self.row)).encode()]

    def pinned(self, refs: Sequence[str], longest: int) -> dict[str, Pinned]:
        nodes, comment = str(self.row["required_nodes"]), str(self.row["admin_comment"])
        assert len(nodes) <= longest
        return {"7": Pinned("7", 0, nodes, comment)}

    def nodes(self) -> list[dict[str, Any]]:
        return []

    def version(self) -> str:
        return "22.05.8"

    def update_jobs(self, changes: Mapping[str, Mapping[str, str]]) -> None:
        for given in changes.values():
            words = {"admin_comment": given["AdminComment"]}
            if "NodeList" in given:
                words["required_nodes"] = given["NodeList"]
            type(self).row = {**self.row, **words}

    def scontrol(self, verb: str, refs: Sequence[str], option: str = "") -> None:
        if verb == "release" and refs:
            type(self).row = {**self.row, "priority": 1}


class Admits:
    """A server that admits the job, and has something to say to its owner yet."""

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders:
        order = JobOrder(ref="7", wanted=WantedOfJob.RUN, lease="a-7/job/1", nodes=["n1"])
        return SchedulerOrders(now=0.0, jobs=[order], comments={"7": "RackPowerHeadroom: short"})

    def scheduler_news(self, name: str, after: str) -> str:
        return after


def test_what_its_owner_was_to_read_does_not_take_its_lease(tmp_path: Path) -> None:
    slurm = OneJob()
    Bridge(BridgeSettings(name="hall-a", run_dir=tmp_path), Admits(), slurm=slurm).step()
    assert slurm.row["priority"] == 1
    assert slurm.row["admin_comment"].startswith("[headroom lease a-7/job/1 0]")


class Accounts:
    """A server that tells the owner of a running job what it has used; ``evicts`` it, too."""

    def __init__(self, *, evicts: bool = False) -> None:
        self._evicts = evicts

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders:
        order = JobOrder(ref="7", wanted=WantedOfJob.EVICT, why="the feed is lost")
        jobs = [order] if self._evicts else []
        return SchedulerOrders(now=0.0, jobs=jobs, comments={"7": "its GPUs have used 1 kWh"})

    def scheduler_news(self, name: str, after: str) -> str:
        return after


@pytest.mark.parametrize(
    ("mark", "restarts", "evicts", "shown"),
    [
        ("[headroom lease a-7/job/1 0] admitted on n1", 0, False,
         "[headroom lease a-7/job/1 0] its GPUs have used 1 kWh"),
        # Of an earlier start, or without us: it is no lease of what runs.
        ("[headroom lease a-7/job/1 0] admitted on n1", 1, False,
         "[headroom lease a-7/job/1 0] admitted on n1"),
        ("", 0, False, ""),
        ("[headroom lease a-7/job/1 0] admitted on n1", 0, True,
         "[headroom hold] the feed is lost"),
    ],
)  # fmt: skip
def test_what_a_running_job_has_used_stands_behind_its_lease(
    tmp_path: Path, mark: str, restarts: int, evicts: bool, shown: str
) -> None:
    slurm = OneJob()
    running = {
        "job_state": "RUNNING", "priority": 1, "admin_comment": mark, "restart_cnt": restarts,
        "nodes": "n1", "requeue": True, "batch_flag": True,
    }  # fmt: skip
    type(slurm).row = {**slurm.row, **running}
    bridge = Bridge(
        BridgeSettings(name="hall-a", run_dir=tmp_path), Accounts(evicts=evicts), slurm=slurm
    )
    bridge.step()
    assert slurm.row["admin_comment"] == shown
