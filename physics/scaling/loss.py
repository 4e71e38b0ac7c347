"""What is left of the peak of a fleet, and how long it trains with that."""

from __future__ import annotations

import dataclasses

from physics.law import Count, Positive, Share, Values, law

__all__ = [
    "CompoundLoss",
    "TrainingTime",
    "compound_loss",
    "effective_rate_flops",
    "lost_share",
    "needed_rate_flops",
    "total_peak_flops",
    "training_time",
    "useful_share",
]

#: FLOP to train a dense transformer, for each parameter and token: 2 forward, 4 backward.
_TRAINING_FLOP = 6.0


@law
def useful_share(*, mfu: Share = 1.0, efficiency: Share = 1.0, goodput: Share = 1.0) -> Values:
    """Return the share of peak that trains: ``MFU · η_scaling · η_goodput``.

    A factor that is left out counts as no loss. ``goodput`` is the share of wall time in which
    steps are made that count.
    """
    return mfu * efficiency * goodput


@law
def lost_share(*, mfu: Share = 1.0, efficiency: Share = 1.0, goodput: Share = 1.0) -> Values:
    """Return the share of peak that is lost: ``1 - MFU · η_scaling · η_goodput``.

    With ``efficiency`` alone: the share of compute that is overhead at this size, 1 - η.
    """
    return 1.0 - mfu * efficiency * goodput


@law
def total_peak_flops(*, gpus: Count, peak_flops: Positive) -> Values:
    """Return the peak of all GPUs together, FLOP/s: ``N · R_peak``. No system sustains it."""
    return gpus * peak_flops


@law
def effective_rate_flops(
    *, gpus: Count, peak_flops: Positive, mfu: Share, efficiency: Share, goodput: Share
) -> Values:
    """Return the rate of useful work, FLOP/s: ``R_eff = N · R_peak · MFU · η_scaling · η_goodput``.

    ``peak_flops`` is one GPU's dense peak at the precision of the work (not "with sparsity").
    ``mfu`` is that of a job small enough not to lose anything to scale, or the loss counts twice.
    """
    return gpus * peak_flops * (mfu * efficiency * goodput)


@dataclasses.dataclass(frozen=True)
class CompoundLoss:
    """Where the peak of a fleet goes: what each loss takes of what those before it left."""

    total_peak_flops: Values
    lost_to_mfu_flops: Values
    lost_to_scaling_flops: Values
    lost_to_overhead_flops: Values
    effective_rate_flops: Values
    useful_share: Values
    lost_share: Values


@law
def compound_loss(
    *, gpus: Count, peak_flops: Positive, mfu: Share, efficiency: Share, goodput: Share
) -> CompoundLoss:
    """Return what is lost of ``N · R_peak`` to MFU, then to scaling, then to overheads.

    The three losses and :func:`effective_rate_flops` add up to the peak. The same loss late in the
    chain takes fewer FLOP/s than early: the order is that of the formula.
    """
    total = gpus * peak_flops
    after_mfu = total * mfu
    after_scaling = after_mfu * efficiency
    useful = mfu * efficiency * goodput
    return CompoundLoss(
        total_peak_flops=total,
        lost_to_mfu_flops=total * (1.0 - mfu),
        lost_to_scaling_flops=after_mfu * (1.0 - efficiency),
        lost_to_overhead_flops=after_scaling * (1.0 - goodput),
        effective_rate_flops=total * useful,
        useful_share=useful,
        lost_share=1.0 - useful,
    )


@law
def needed_rate_flops(*, parameters: Positive, tokens: Positive, time_s: Positive) -> Values:
    """Return the effective rate that trains a dense transformer in a time: ``6 P D / t``, FLOP/s.

    Six FLOP for each parameter and token: two in the forward pass, four in the backward pass.
    Without attention over the context (a few percent at short contexts) and recomputation of
    activations (it costs time, but is not useful work). For a mixture of experts, P is what is
    active. Source: Kaplan and others 2020.
    """
    return _TRAINING_FLOP * parameters * tokens / time_s


@dataclasses.dataclass(frozen=True)
class TrainingTime:
    """The work of a training run, how long it takes and what it occupies."""

    work_flop: Values
    time_s: Values
    gpu_time_h: Values


@law
def training_time(
    *, parameters: Positive, tokens: Positive, gpus: Count, effective_rate_flops: Positive
) -> TrainingTime:
    """Return the wall time of training on N GPUs, ``t = 6 P D / R_eff``, and GPU-hours ``N t``.

    ``effective_rate_flops`` is that of all N GPUs with all losses (:func:`effective_rate_flops`).
    For 6 P D see :func:`needed_rate_flops`.
    """
    work_flop = _TRAINING_FLOP * parameters * tokens
    time_s = work_flop / effective_rate_flops
    return TrainingTime(work_flop=work_flop, time_s=time_s, gpu_time_h=gpus * time_s / 3600.0)
