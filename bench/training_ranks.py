"""A loop that checkpoints to the local disk, resumes from it, and writes down each of its steps.

``training_ranks.py FOLDER STEPS EVERY WIDTH`` under a launcher, with gloo: an MLP of that width,
saved every so many steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headroom import training

_ROWS, _FEATURES, _CLASSES = 16, 64, 8


def main(folder: Path, steps: int, every: int, width: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(_FEATURES, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, _CLASSES),
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    newest, step = folder / "newest.pt", 0
    if newest.exists():
        state = torch.load(newest)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]

    def save(number: int) -> None:
        if rank == 0:
            whole = folder / "unfinished.pt"
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number},
                whole,
            )
            whole.replace(newest)

    with (
        (folder / f"rank-{rank}.jsonl").open("a", buffering=1) as told,
        training.session(save=save, step=step) as run,
    ):
        print(json.dumps({"pid": os.getpid(), "from": step}), file=told)
        while run.step_number < steps:
            number = run.step_number + 1
            # By step and rank alone: whoever repeats a step computes the same.
            source = torch.Generator().manual_seed(1000 * number + rank)
            inputs = torch.randn(_ROWS, _FEATURES, generator=source)
            loss = nn.functional.cross_entropy(model(inputs), inputs[:, :_CLASSES].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            said = {"step": number, "loss": loss.item(), "at": time.monotonic(), "pid": os.getpid()}
            print(json.dumps(said), file=told)
            run.step(loss=loss.detach())
            if run.step_number % every == 0:
                run.save()
    dist.barrier()
    sys.stdout.flush()
    # Without the seconds that a process group takes to end.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
