"""What ``headroom.training`` costs a loop: for each step of 100 ms, alone and with two gloo ranks.

Both the time that the loop spends in ``step`` and the CPU time of the whole process count, beside a
loop without it; an agent's socket takes the reports, and the files of directives are there. Steps
sleep: what they compute does not matter here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import report
from bench.stack import REPOSITORY, free_port
from headroom import training
from headroom.agent.sources.training import TrainingSource

STEP_S = 0.1
STEPS = 200
#: The bar: a tenth of a percent of a step.
BAR = 0.001
_WARM = 10


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="headroom-training-") as folder:
        listener = TrainingSource()
        listener.listen("bench/train/1", Path(folder, "reports"), os.getuid(), os.getgid())
        Path(folder, "directives").write_text('{"seq": 1, "batch_scale": 0.5}')
        told = {
            "HEADROOM_DIRECTIVES": f"{folder}/directives",
            "HEADROOM_STATUS": f"{folder}/status",
            "HEADROOM_REPORTS": f"{folder}/reports",
        }
        (bare,), (alone,) = _ranks(1, {}), _ranks(1, told)
        has_torch = importlib.util.find_spec("torch") is not None
        two_bare, two = (_ranks(2, {}), _ranks(2, told)) if has_torch else ([], [])
        rows = list(listener.read())
        listener.close()
    figures = {
        "overhead_share": alone["in_step_s"] / STEP_S,
        "step_us": alone["in_step_s"] * 1e6,
        "step_p99_us": alone["in_step_p99_s"] * 1e6,
        "cpu_us": (alone["cpu_s"] - bare["cpu_s"]) * 1e6,
        "without_agent_us": bare["in_step_s"] * 1e6,
        "reported": len(rows),
    }
    if two:
        figures |= {
            "two_ranks_overhead_share": max(each["in_step_s"] for each in two) / STEP_S,
            "two_ranks_step_us": max(each["in_step_s"] for each in two) * 1e6,
            "two_ranks_step_p99_us": max(each["in_step_p99_s"] for each in two) * 1e6,
            "two_ranks_cpu_us": (two[0]["cpu_s"] - two_bare[0]["cpu_s"]) * 1e6,
        }
    report.show(
        "training",
        figures,
        {
            "overhead_share": f"of a step of {STEP_S * 1e3:.0f} ms; bar: under {BAR}",
            "step_us": "mean time in step(), with an agent",
            "cpu_us": "CPU of the process for each step, less that of the loop without an agent",
            "without_agent_us": "mean time in step(), without one",
            "reported": "jobs whose reports arrived",
            "two_ranks_overhead_share": f"the slower of both; bar: under {BAR}",
            "two_ranks_cpu_us": "of the first rank",
        },
    )


def _ranks(world: int, told: Mapping[str, str]) -> list[dict[str, float]]:
    """Run a loop on each of ``world`` ranks; return what they measured."""
    port = str(free_port())
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.training", str(rank), str(world), port],
            cwd=REPOSITORY,
            env={**os.environ, **told},
            stdout=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    return [json.loads(each.communicate()[0].splitlines()[-1]) for each in started]


def _loop(rank: int, world: int, port: str) -> dict[str, float]:
    meet = _meeting(rank, world, port) if world > 1 else lambda: None
    spent: list[float] = []
    with training.session(batch=training.Batch(64)) as run:
        for number in range(STEPS + _WARM):
            if number == _WARM:
                cpu_s = time.process_time()
            time.sleep(STEP_S)
            meet()
            began_s = time.perf_counter()
            run.step(loss=1.0, samples=64)
            spent.append(time.perf_counter() - began_s)
        cpu_s = time.process_time() - cpu_s
    measured = spent[_WARM:]
    return {
        "in_step_s": sum(measured) / len(measured),
        "in_step_p99_s": report.percentile(measured, 0.99),
        "cpu_s": cpu_s / STEPS,
    }


def _meeting(rank: int, world: int, port: str) -> Any:
    """Return what ranks of a loop do in each step anyway: exchange gradients."""
    # Not needed where one rank is measured.
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    gradients = torch.zeros(100_000)
    return lambda: dist.all_reduce(gradients)


if __name__ == "__main__":
    print(json.dumps(_loop(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])), flush=True)
    # Without the seconds that a process group takes to end.
    os._exit(0)
