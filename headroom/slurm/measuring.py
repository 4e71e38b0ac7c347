"""Measure what a job of Slurm has made, in the job and as its user, for the bridge to tell of."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headroom.errors import HeadroomError
from headroom.schedulers import words
from headroom.slurm.commands import Slurm
from headroom.slurm.files import Shared
from headroom.work.outputs import measure

__all__ = ["measure_of"]


def measure_of(ref: str, shared_dir: Path, slurm: Slurm) -> None:
    """Measure the artifacts that job ``ref`` declares in its comment.

    Raises Refused for the first that is not there or cannot be read, and
    :class:`~headroom.errors.HeadroomError` where the comment cannot be read.
    """
    said = words.read(slurm.comment(ref))
    if wrong := [each for each in said.wrong if each.startswith("output ")]:
        raise HeadroomError(f"the comment of job {ref}: {wrong[0]}")
    declared = [msgspec.to_builtins(each) for each in said.outputs]
    measure(declared, Shared(shared_dir).outputs_file(ref))
