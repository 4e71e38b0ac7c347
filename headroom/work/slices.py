"""The MIG slices of this machine: which one a job is meant to have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from headroom.errors import HeadroomError
from headroom.work.contract import Slice, Task

__all__ = ["SliceError", "Slices", "devices_of"]

#: Profile and UUID of the slices of each GPU by its index, in the order of NVML.
Slices: TypeAlias = Callable[[], Mapping[int, Sequence[tuple[str, str]]]]


class SliceError(HeadroomError):
    """This machine does not have a slice that a job was given."""


def devices_of(task: Task, slices: Slices) -> str:
    """Return what CUDA is to show to a task: indices of GPUs, or the UUIDs of its slices.

    Raises :class:`SliceError` where NVML does not show one of them: another one is not taken.
    """
    if task.slices:
        known = slices()
        return ",".join(_uuid(each, known) for each in task.slices)
    return ",".join(str(gpu) for gpu in sorted(task.gpus))


def _uuid(wanted: Slice, known: Mapping[int, Sequence[tuple[str, str]]]) -> str:
    there = known.get(wanted.gpu, ())
    if wanted.place < len(there):
        profile, uuid = there[wanted.place]
        if profile == wanted.profile:
            return uuid
    shown = ", ".join(profile for profile, _ in there) or "none"
    raise SliceError(
        f"GPU {wanted.gpu} has no slice {wanted.profile} in place {wanted.place}:"
        f" NVML shows {shown}"
    )
