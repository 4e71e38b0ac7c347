"""Real processes under load, killed with SIGKILL: what was acknowledged is there once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from bench.stack import REPOSITORY, Stack

LOAD_S = 24
VICTIMS = ("worker", "web", "valkey", "postgres")


def start_load(stack: Stack, token_file: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "sim", "load", "--server", stack.url,
        "--token-file", str(token_file), "--gpus", "512", "--batch-gpus", "8",
        "--rate", "2000", "--duration-s", str(LOAD_S),
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def stored(stack: Stack) -> dict[str, tuple[int, float]]:
    """Return of each agent the rows in Postgres and the sum of their energy_j."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            """
            SELECT agent.name, count(*), sum(sample.energy_j)
            FROM gpu_sample AS sample
            JOIN fleet_gpu AS gpu ON gpu.id = sample.gpu_id
            JOIN telemetry_agent_nodes AS scope ON scope.node_id = gpu.node_id
            JOIN telemetry_agent AS agent ON agent.id = scope.agent_id
            WHERE agent.name LIKE 'load-%'
            GROUP BY agent.name
            """
        ).fetchall()
    return {name: (rows, energy) for name, rows, energy in found}


def wait_for_rows(stack: Stack) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if stored(stack):
            return
        time.sleep(0.2)
    raise AssertionError("no row arrived")


def test_every_acknowledged_reading_is_there_once_whatever_is_killed(
    stack: Stack, token_file: Path
) -> None:
    load = start_load(stack, token_file)
    wait_for_rows(stack)
    for victim in VICTIMS:
        time.sleep(2.5)
        before = {process.pid for process in stack.pids(victim)}
        assert before, f"no {victim} to kill"
        stack.kill(victim)
        stack.wait_ready()
        assert not before & {process.pid for process in stack.pids(victim)}
    output, _ = load.communicate(timeout=180)
    result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    assert load.returncode == 0, result
    assert result["batches_stored"] == result["batches_made"] > 0
    assert result["batches_refused"] == 0
    expected = {each["agent"]: (each["rows"], each["energy_j"]) for each in result["by_agent"]}
    assert stored(stack) == expected
