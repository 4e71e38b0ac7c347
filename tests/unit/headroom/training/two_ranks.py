"""One of two PyTorch ranks over gloo: what adapters do to gradients, and what ranks agree on.

``python two_ranks.py RANK PORT`` prints one JSON object.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from headroom import training
from headroom.training.pytorch import TorchGroup, accumulating, scaled_lr, watch_gradient_sync

_ROWS = 12


def model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def batch(rank: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(rank)
    return (
        torch.randn(_ROWS, 6, generator=generator),
        torch.randint(3, (_ROWS,), generator=generator),
    )


def trained(wrapped: Any, rank: int, scale: float) -> list[float]:
    """Make two steps with a batch in parts; return the parameters that come of it."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    inputs, targets = batch(rank)
    for _ in range(2):
        optimizer.zero_grad()
        for part in training.Batch(_ROWS).under(scale).parts:
            with accumulating(wrapped, part):
                loss = nn.functional.cross_entropy(wrapped(inputs[part.rows]), targets[part.rows])
                (loss * part.weight).backward()
        optimizer.step()
    found = [
        getattr(each, "full_tensor", lambda each=each: each)() for each in wrapped.parameters()
    ]
    return [float(value) for each in found for value in each.detach().flatten()]


def sync(rank: int) -> tuple[bool, float]:
    """Have the other rank be late; return how long this one waited for its gradients."""
    wrapped = DistributedDataParallel(model())
    inputs, targets = batch(rank)
    with training.session() as run:
        is_watched = watch_gradient_sync(wrapped, run)
        for _ in range(3):
            time.sleep(0.4 * rank)
            nn.functional.cross_entropy(wrapped(inputs), targets).backward()
            run.step()
    return is_watched, run.counts.sections[training.Section.GRADIENT_SYNC]


def agreed(rank: int) -> dict[str, Any]:
    """Offer what differs by rank, and make steps until both have saved."""
    group = TorchGroup()
    group.offer([float(rank), -float(rank)])
    greatest = list(group.take())
    saved: list[int] = []
    with training.session(save=saved.append) as run:
        while not saved:
            time.sleep(0.02 * (1 + rank))
            dist.barrier()
            if rank == 0 and run.step_number == 5:
                told = Path(os.environ["HEADROOM_DIRECTIVES"])
                told.with_suffix(".new").write_text('{"seq": 1, "checkpoint": 1}')
                told.with_suffix(".new").rename(told)
            run.step(loss=torch.tensor(0.5))
    return {"greatest": greatest, "saved": saved, "is_first_here": group.is_first_here}


def main(rank: int, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    plain = model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    with scaled_lr(optimizer, 0.5):
        during = optimizer.param_groups[0]["lr"]
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    told = {
        **agreed(rank),
        "lr": [during, optimizer.param_groups[0]["lr"]],
        "ddp": [trained(DistributedDataParallel(copy.deepcopy(plain)), rank, s) for s in (1, 0.25)],
        "fsdp": [trained(fully_shard(copy.deepcopy(plain), mesh=mesh), rank, s) for s in (1, 0.25)],
        "plain": trained(copy.deepcopy(plain), rank, 0.25),
        "sync": sync(rank),
    }
    dist.barrier()
    print(json.dumps(told), flush=True)
    # Without the seconds that the process group takes to end.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
