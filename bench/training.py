"""What ``headroom.training`` costs a loop: for each step of 100 ms, alone and with two gloo ranks.

And for how long ranks stand still when one of eight is killed: ours are forks of a process that has
imported PyTorch, ``torchrun`` starts them anew.

Both the time that the loop spends in ``step`` and the CPU time of the whole process count, beside a
loop without it; an agent's socket takes the reports, and the files of directives are there. Steps
sleep: what they compute does not matter here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import statistics
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
#: Of so many ranks one is killed, so often; until all step again it may take so long, s.
KILLED_OF, KILLS, RESTART_BAR_S = 8, 3, 5.0
_LIMIT_S = 300.0


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
        restarts = _restarts(Path(folder)) if has_torch else {}
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
        figures | restarts,
        {
            "overhead_share": f"of a step of {STEP_S * 1e3:.0f} ms; bar: under {BAR}",
            "step_us": "mean time in step(), with an agent",
            "cpu_us": "CPU of the process for each step, less that of the loop without an agent",
            "without_agent_us": "mean time in step(), without one",
            "reported": "jobs whose reports arrived",
            "two_ranks_overhead_share": f"the slower of both; bar: under {BAR}",
            "two_ranks_cpu_us": "of the first rank",
            "restart_s": f"kill -9 of one of {KILLED_OF} ranks until all step again, median"
            f" of {KILLS}; bar: {RESTART_BAR_S:g}",
            "restart_most_s": "the slowest of these",
            "torchrun_restart_s": "the same loop under torchrun --max-restarts, median",
            "torchrun_restart_most_s": "the slowest of these",
        },
    )


def _restarts(folder: Path) -> dict[str, float]:
    """Return how long ranks of each launcher stand still after one was killed, s."""
    ours = ["headroom.training", "run", "--ranks", str(KILLED_OF)]
    theirs = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(KILLED_OF)]
    more = ["--max-restarts", str(KILLS)]
    found: dict[str, float] = {}
    for name, words in (("", ours), ("torchrun_", [*theirs, "--monitor-interval", "0.1"])):
        place = folder / f"{name}ranks"
        place.mkdir()
        spent = _stood_still([*words, *more], place)
        found |= {
            f"{name}restart_s": statistics.median(spent),
            f"{name}restart_most_s": max(spent),
        }
    return found


def _stood_still(words: list[str], folder: Path) -> list[float]:
    """Kill a rank again and again; return the seconds until all of them step again."""
    script = str(REPOSITORY / "bench/training_ranks.py")
    launcher = subprocess.Popen(
        [sys.executable, "-m", *words, script, str(folder), "1000000", "5", "1024"],
        cwd=REPOSITORY,
        # The last: with the store of its launcher torchrun's ranks find addresses of the dead.
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        spent, dead = [], set[int]()
        _await_steps(folder, dead, steps=7)
        for number in range(KILLS):
            alive = _lives(folder)
            dead |= {steps[-1]["pid"] for steps in alive}
            began_s = time.monotonic()
            os.kill(alive[number % KILLED_OF][-1]["pid"], signal.SIGKILL)
            spent.append(_await_steps(folder, dead, steps=1) - began_s)
            _await_steps(folder, dead, steps=7)
    finally:
        launcher.terminate()
        launcher.wait()
    return spent


def _await_steps(folder: Path, dead: set[int], *, steps: int) -> float:
    """Wait until each rank has made ``steps`` in a new life; return when the last one had."""
    end_s = time.monotonic() + _LIMIT_S
    while time.monotonic() < end_s:
        made = [[each["at"] for each in told if each["pid"] not in dead] for told in _lives(folder)]
        if len(made) == KILLED_OF and all(len(each) >= steps for each in made):
            return float(max(each[steps - 1] for each in made))
        time.sleep(0.05)
    raise TimeoutError("ranks do not step")


def _lives(folder: Path) -> list[list[dict[str, Any]]]:
    """Return the steps that each rank has written down, of all of its lives."""
    found = []
    for path in sorted(folder.glob("rank-*.jsonl")):
        lines = path.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        found.append([each for each in told if "step" in each])
    return found


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
