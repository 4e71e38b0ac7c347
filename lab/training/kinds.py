"""Kinds of job, and how their load goes up and down."""

from __future__ import annotations

from dataclasses import dataclass

#: A range that values are drawn from evenly.
Range = tuple[float, float]

#: Longer than any run, and finite, so that arithmetic with it stays so.
NEVER_S = 1e12


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """A kind of job by its load. ``activity`` is load; 1 is a GPU at its rating.

    What asks for more is held at the GPU's own limit. The ranges of training and fine-tuning are
    fitted to level and variety of the kinds that :func:`lab.calibration.unseen.unseen_kinds` does
    not name.

    Evaluations begin ``eval_every_s`` after each other; each ends such a span. The first span
    begins ``eval_from_s`` after the warm-up. Before the first evaluation a job stands still for
    ``eval_pause_s``, as in its warm-up.
    """

    name: str
    stems: tuple[str, ...]
    nodes: tuple[int, ...]
    activity: Range
    comm_activity: float
    period_s: Range
    comm_share: Range
    checkpoint_every_s: Range
    checkpoint_s: Range
    warmup_s: Range
    mean_life_s: float
    mem_share: Range
    warmup_activity: float = 0.12
    eval_every_s: Range = (NEVER_S, NEVER_S)
    eval_s: Range = (0.0, 0.0)
    eval_from_s: float = 0.0
    eval_pause_s: float = 0.0
    eval_activity: float = 0.0


JOB_KINDS = {
    kind.name: kind
    for kind in (
        JobKind(
            name="train",
            stems=("pretrain-13b", "pretrain-70b", "moe-8x7b", "vision-2b"),
            nodes=(4, 8, 8, 16, 16),
            activity=(0.65, 1.45),
            comm_activity=0.62,
            period_s=(6.0, 24.0),
            comm_share=(0.10, 0.25),
            checkpoint_every_s=(900.0, 1800.0),
            checkpoint_s=(20.0, 45.0),
            warmup_s=(60.0, 150.0),
            mean_life_s=3 * 3600.0,
            mem_share=(0.8, 0.96),
        ),
        JobKind(
            name="finetune",
            stems=("lora-70b", "sft-8b", "dpo-13b", "rlhf-8b"),
            nodes=(1, 2, 2, 4),
            activity=(0.55, 1.4),
            comm_activity=0.55,
            period_s=(3.0, 9.0),
            comm_share=(0.08, 0.2),
            checkpoint_every_s=(600.0, 1200.0),
            checkpoint_s=(8.0, 20.0),
            warmup_s=(40.0, 90.0),
            mean_life_s=2400.0,
            mem_share=(0.6, 0.9),
        ),
        JobKind(
            name="serve",
            stems=("serve-chat", "serve-embed", "serve-code", "serve-vision"),
            nodes=(1, 1, 2),
            activity=(0.35, 0.75),
            comm_activity=0.3,
            period_s=(40.0, 180.0),
            comm_share=(0.2, 0.4),
            checkpoint_every_s=(NEVER_S, NEVER_S),
            checkpoint_s=(1.0, 1.0),
            warmup_s=(30.0, 60.0),
            mean_life_s=6 * 3600.0,
            mem_share=(0.7, 0.92),
        ),
        JobKind(
            name="evaluate",
            stems=("eval-suite", "eval-long-context", "preprocess", "features"),
            nodes=(1, 1, 2),
            activity=(0.25, 0.6),
            comm_activity=0.15,
            period_s=(10.0, 40.0),
            comm_share=(0.2, 0.5),
            checkpoint_every_s=(NEVER_S, NEVER_S),
            checkpoint_s=(1.0, 1.0),
            warmup_s=(20.0, 40.0),
            mean_life_s=900.0,
            mem_share=(0.2, 0.6),
        ),
    )
}
