"""How GPUs are laid out: nodes, tori and the stages of a pipeline."""

from __future__ import annotations

import numpy as np

from physics._bounds import PositiveShare
from physics.law import Count, Values, law

__all__ = ["gpus_total", "microbatches_for_bubble", "pipeline_bubble", "torus_size"]

#: Makes a number of microbatches that exactly gives a bubble pass for enough in spite of rounding.
_ROUNDING = 1e-12


@law
def pipeline_bubble(*, stages: Count, microbatches: Count, chunks: Count = 1.0) -> Values:
    """Return the share of a step in which a pipeline's stages idle: ``(p-1) / (v·m + p - 1)``.

    p stages of equal time, m microbatches a step; ``chunks`` (v) is the number of model chunks on
    each stage of an interleaved schedule, 1 for GPipe and 1F1B. A share of the whole step: the
    ``(p-1) / m`` that is often printed is relative to the time without bubble. Exactly 0 at p = 1.
    Source: Huang and others 2019 (GPipe); Narayanan and others 2021 (interleaved).
    """
    return (stages - 1.0) / (chunks * microbatches + stages - 1.0)


@law
def microbatches_for_bubble(*, stages: Count, bubble: PositiveShare, chunks: Count = 1.0) -> Values:
    """Return the fewest microbatches that keep the bubble to a share b of the step.

    ``m = ceil((p-1) (1-b) / (b v))``, at least 1: the inverse of :func:`pipeline_bubble`.
    """
    exact = (stages - 1.0) * (1.0 - bubble) / (bubble * chunks)
    return np.maximum(np.ceil(exact * (1.0 - _ROUNDING)), 1.0)


@law
def gpus_total(*, nodes: Count, gpus_per_node: Count) -> Values:
    """Return the number of GPUs: ``nodes · GPUs per node``."""
    return nodes * gpus_per_node


@law
def torus_size(*, x: Count, y: Count, z: Count = 1.0) -> Values:
    """Return the number of chips of a torus: ``x · y · z``."""
    return x * y * z
