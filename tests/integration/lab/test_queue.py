"""The demo's teams and machines with a real server: jobs are queued, run in the twin, and end."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from bench.stack import Stack
from headroom.client import Client
from lab.demo import Settings
from lab.fleet import GPUS_PER_NODE
from tests.builders.demo import heard_demo, until

pytestmark = pytest.mark.slow
SPEC = {
    "name": "trial-1",
    "project": "speech",
    "class": "low-power-experimentation",
    "phases": [
        {
            "name": "train",
            "gang": {"gpus": 16, "gpus_per_node": 8},
            "power": {"expected_peak_w": 650},
            "locality": {"required": "site"},
            "walltime_s": 600,
            "command": ["python", "train.py"],
            "env": {"TWIN_WORK_S": "15", "TWIN_KIND": "train", "TWIN_EXIT_CODE": "3"},
        }
    ],
}


def test_jobs_are_queued_run_in_the_twin_and_end(stack: Stack) -> None:
    token = stack.credential("operator_token")
    operator = Client(stack.url, token)
    with heard_demo(stack, token, Settings(gpus=128, sample_s=2.0, teams=True)) as demo:
        until(lambda: operator.get("/api/v1/queue")["waiting"] > 3, 60.0)
        queue = operator.get("/api/v1/queue")["queue"]
        assert all(row["reason"] for row in queue)
        # Ahead of all others, so that the room that there is is its own.
        operator.post("/api/v1/jobs", {**SPEC, "priority": 100})

        def job() -> Any:
            return operator.get("/api/v1/jobs/trial-1")

        until(lambda: job()["phases"][0]["state"] == "running", 90.0)
        (attempt,) = job()["phases"][0]["attempts"]
        nodes = [demo.fleet.nodes.index(name) for name in attempt["placement"]["nodes"]]
        assert demo.twin.queued[nodes].all()
        gpus = [node * GPUS_PER_NODE for node in nodes]
        names = {demo.twin.workload.names[slot] for slot in demo.twin.job_of_gpu[gpus]}
        assert names == {"trial-1"}
        until(lambda: job()["state"] == "failed", 60.0)
        (attempt,) = job()["phases"][0]["attempts"]
        assert (attempt["outcome"], attempt["exit_code"]) == ("failed", 3)
        until(lambda: _told(stack, "trial-1") > 0, 20.0)


def _told(stack: Stack, job: str) -> int:
    """Return how many of the stored reports on a job have a step and a loss."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
        found = database.execute(
            "SELECT count(*) FROM job_sample JOIN telemetry_reportedjob AS job ON job.id = job_id"
            " WHERE job.name = %s AND step > 0 AND loss > 0",
            [job],
        ).fetchone()
    return 0 if found is None else int(found[0])
