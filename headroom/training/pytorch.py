"""Bare PyTorch: ranks of ``torch.distributed``, gradients accumulated over parts of a batch.

DDP and FSDP exchange gradients in the last part of a batch alone: :func:`accumulating`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from headroom.training.batch import Part
from headroom.training.sections import Section, Sections

__all__ = ["TorchGroup", "accumulating", "scaled_lr", "watch_gradient_sync"]


class TorchGroup:
    """The ranks of the default process group. They agree over one of gloo's own, on the CPU.

    So nothing is queued on a GPU, and what one waits for was begun a step before.
    """

    def __init__(self) -> None:
        """Make the group. All ranks do that together."""
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo")
        here = (socket.gethostname(), os.environ.get("HEADROOM_RANK", ""))
        places: list[tuple[str, str]] = [here] * self.world
        dist.all_gather_object(places, here, group=self._group)
        self.is_first_here = places.index(here) == self.rank
        #: what is exchanged, and the tensor that lies in the same memory
        self._values = array("d")
        self._tensor: Any = None
        self._work: Any = None

    def offer(self, values: Sequence[float]) -> None:
        """Begin to find the greatest of each value over all ranks."""
        if len(self._values) != len(values):
            self._values = array("d", values)
            self._tensor = torch.frombuffer(self._values, dtype=torch.float64)
        else:
            self._values[:] = array("d", values)
        self._work = dist.all_reduce(
            self._tensor, op=dist.ReduceOp.MAX, group=self._group, async_op=True
        )

    def take(self) -> Sequence[float]:
        """Return the greatest of each value; waits for all ranks."""
        self._work.wait()
        self._work = None
        return self._values.tolist()

    def close(self) -> None:
        """Wait for what was offered last, so that no rank is left alone with it."""
        if self._work is not None:
            self.take()


@contextlib.contextmanager
def accumulating(model: Any, part: Part) -> Iterator[None]:
    """Keep ``model`` (DDP, FSDP, or any other) from exchanging gradients before the last part."""
    if hasattr(model, "set_requires_gradient_sync"):  # FSDP2
        model.set_requires_gradient_sync(part.is_last)
    elif not part.is_last and hasattr(model, "no_sync"):  # DDP, FSDP
        with model.no_sync():
            yield
        return
    yield


@contextlib.contextmanager
def scaled_lr(optimizer: Any, factor: float) -> Iterator[None]:
    """Multiply the learning rates of ``optimizer`` for one step, whatever schedules them."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def watch_gradient_sync(model: Any, run: Sections) -> bool:
    """Count how long steps of a DDP model wait for the gradients of other ranks.

    That is from the end of the rank's own backward pass, when it has handed over its last bucket,
    until all others have. Return whether it can be told: on a GPU nothing of it is seen from here,
    and the model is left as it was.
    """
    if any(each.device.type != "cpu" for each in model.parameters()):
        return False

    def hook(_state: object, bucket: Any) -> Any:
        exchanged = allreduce_hook(model.process_group, bucket)
        if not bucket.is_last():
            return exchanged
        began_s = run.now()

        def note(done: Any) -> Any:
            run.spent(Section.GRADIENT_SYNC, run.now() - began_s)
            return done.value()

        return exchanged.then(note)

    # DDP compares annotations with its own types, and these are strings here.
    hook.__annotations__.clear()
    model.register_comm_hook(None, hook)
    return True
