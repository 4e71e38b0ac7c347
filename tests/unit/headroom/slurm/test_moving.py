"""Jobs that come from another cluster are submitted once, as their owners, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headroom.schedulers import words
from headroom.schedulers.contract import Parcel, SchedulerOrders, SchedulerReport
from headroom.slurm import moving
from headroom.slurm.bridge import Bridge, BridgeSettings
from headroom.slurm.commands import Refused, Slurm, SlurmError
from headroom.slurm.reading import jobs_of

KEY = "hall-a-7/move/1"
PARCEL = Parcel(user="nobody", script="#!/bin/sh\n./train\n", options={"gres": "gpu:4"})


@dataclass(frozen=True)
class Submits(Slurm):
    """A Slurm that takes jobs, or fails in some way before or after it has."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)
    said: list[Sequence[str]] = field(default_factory=list)
    seen: list[Mapping[str, str]] = field(default_factory=list)

    def job_rows(self) -> list[bytes]:
        return [json.dumps(row).encode() for row in self.rows]

    def nodes(self) -> list[dict[str, Any]]:
        return []

    def version(self) -> str:
        return "22.05.8"

    def script(self, ref: str) -> str:
        if ref == "8":
            raise SlurmError("it has none")
        return "#!/bin/sh\n./train\n"

    def submit(self, options: Sequence[str], script: str, env: Mapping[str, str]) -> str:
        how = self.fails.pop(0) if self.fails else ""
        if how == "refuses":
            raise Refused("Invalid account")
        (comment,) = (o.partition("=")[2] for o in options if o.startswith("--comment="))
        self.said.append(options)
        self.seen.append(env)
        self.rows.append(
            {
                "job_id": 30 + len(self.rows), "job_state": "PENDING", "priority": 0,
                "admin_comment": "[headroom hold]", "comment": comment, "node_count": 1,
                "tres_per_node": "gres:gpu:4", "submit_time": 100, "user_name": "nobody",
            }
        )  # fmt: skip
        if how == "silent":
            raise SlurmError("sbatch did not answer in 20 s")
        return str(self.rows[-1]["job_id"])


@dataclass
class Wants:
    """A server that wants a job submitted until it is seen, and heeds no answer."""

    reports: list[SchedulerReport] = field(default_factory=list)
    pack: list[str] = field(default_factory=list)

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders:
        self.reports.append(report)
        return SchedulerOrders(now=0.0, submit={} if self.pack else {KEY: PARCEL}, pack=self.pack)

    def scheduler_news(self, name: str, after: str) -> str:
        return after


def rounds(slurm: Slurm, server: Wants, folder: Path, lives: int = 3) -> None:
    """Do two rounds with each of some bridges, one after the other."""
    for _ in range(lives):
        bridge = Bridge(BridgeSettings(name="hall-b", run_dir=folder), server, slurm=slurm)
        for _ in range(2):
            bridge.step(reads=False)


def test_however_often_it_is_asked_for_one_job_is_submitted(tmp_path: Path) -> None:
    slurm, server = Submits(), Wants()
    rounds(slurm, server, tmp_path)
    assert len(slurm.rows) == 1
    assert words.read(slurm.rows[0]["comment"]).moved == KEY
    assert not any(report.refused for report in server.reports)


def test_a_bridge_that_dies_before_it_hears_that_slurm_took_it_submits_nothing_again(
    tmp_path: Path,
) -> None:
    slurm, server = Submits(fails=["silent"]), Wants()
    with pytest.raises(SlurmError):
        rounds(slurm, server, tmp_path, lives=1)
    rounds(slurm, server, tmp_path)
    assert len(slurm.rows) == 1
    assert not any(report.refused for report in server.reports)


def test_what_slurm_refuses_is_told_once_each_time_it_is_asked_for(tmp_path: Path) -> None:
    slurm, server = Submits(fails=["refuses"]), Wants()
    rounds(slurm, server, tmp_path, lives=1)
    assert [report.refused for report in server.reports] == [{}, {KEY: "Invalid account"}]
    assert len(slurm.rows) == 1


def test_one_that_came_and_was_cancelled_there_does_not_come_again() -> None:
    row = {
        "job_id": 31, "job_state": "CANCELLED", "comment": f"headroom: moved={KEY}",
        "tres_per_node": "gres:gpu:4", "node_count": 1, "submit_time": 100,
    }  # fmt: skip
    slurm = Submits()
    refused = moving.submit({KEY: PARCEL}, jobs_of([row]), slurm)
    assert "it came, and is over there: CANCELLED" in refused[KEY]
    assert slurm.said == []


@pytest.mark.parametrize(
    ("user", "options", "why"),
    [
        ("root", {}, "jobs of root do not move"),
        ("nobody-knows-this-one", {}, "there is no user"),
        ("nobody", {"uid": "0"}, "unknown options: uid"),
        ("nobody", {"get-user-env": "x", "wrap": "id"}, "unknown options: get-user-env, wrap"),
    ],
)
def test_the_server_is_not_believed_in_all(user: str, options: dict[str, str], why: str) -> None:
    slurm = Submits()
    refused = moving.submit({KEY: Parcel(user=user, script="x", options=options)}, [], slurm)
    assert why in refused[KEY]
    assert slurm.said == []


def test_it_is_submitted_as_its_owner_and_sees_nothing_of_the_bridge() -> None:
    slurm = Submits()
    assert moving.submit({KEY: PARCEL}, [], slurm) == {}
    assert "--gres=gpu:4" in slurm.said[0]
    assert any(option.startswith("--uid=") for option in slurm.said[0])
    assert sorted(slurm.seen[0]) == ["HOME", "LOGNAME", "SHELL", "USER"]


def test_what_a_job_asks_for_is_asked_for_again() -> None:
    row = {
        "name": "llama", "account": "vision", "partition": "gpu", "qos": "", "time_limit": 90,
        "node_count": 2, "max_nodes": 4, "tasks": 2, "cpus_per_task": None, "tasks_per_node": 0,
        "memory_per_node": {"set": True, "infinite": False, "number": 64000},
        "memory_per_cpu": {"set": False, "infinite": False, "number": 0},
        "tres_per_node": "gres:gpu:h100:4,gres:nvme:1", "tres_per_job": "gres:gpu:8",
        "current_working_directory": "/work", "standard_output": "/work/%j.out",
        "comment": '"headroom: move_to=hall-b"',
    }  # fmt: skip
    assert moving.options_of(row) == {
        "job-name": "llama", "account": "vision", "partition": "gpu", "time": "90",
        "nodes": "2-4", "mem": "64000", "gres": "gpu:h100:4,nvme:1", "gpus": "8",
        "chdir": "/work", "output": "/work/%j.out", "comment": "headroom: move_to=hall-b",
    }  # fmt: skip


def test_tasks_that_somebody_asked_for_are_asked_for() -> None:
    assert moving.options_of({"node_count": 2, "tasks": 16})["ntasks"] == "16"


def test_parcels_are_told_once_and_what_cannot_be_read_is_not_tried_each_second(
    tmp_path: Path,
) -> None:
    rows = [
        {"job_id": 7, "user_name": "nobody", "job_state": "PENDING"},
        {"job_id": 8, "user_name": "nobody", "job_state": "PENDING"},
    ]
    slurm, server = Submits(rows=rows), Wants(pack=["7", "8"])
    bridge = Bridge(BridgeSettings(name="hall-a", run_dir=tmp_path), server, slurm=slurm)
    assert bridge.step()
    server.pack = ["8"]
    assert not bridge.step()
    assert list(server.reports[1].parcels) == ["7"]
    assert server.reports[1].parcels["7"].script == "#!/bin/sh\n./train\n"
    bridge.step()
    assert server.reports[2].parcels == {}
