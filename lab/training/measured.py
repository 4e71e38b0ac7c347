"""Training runs that were measured, as kinds of job: the node power of MLPerf's runs on H100s.

The numbers are fitted to the power of nodes at the wall by ``python -m lab calibrate --fit``, which
prints this table anew; the errors on runs that they were not fitted to are in
``docs/explanation/calibration.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.training.kinds import NEVER_S, JobKind

#: A GPU with a context open that has nothing to do.
SETUP_ACTIVITY = 0.02


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The course of the load in one run; ``comm_activity`` is a share of ``activity``.

    It begins to train after ``setup_s``. A step of ``period_s`` exchanges gradients for
    ``comm_share`` of it. The last ``eval_s`` of each span of ``eval_every_s`` are an evaluation.
    """

    nodes: int
    setup_s: float
    activity: float
    comm_activity: float
    comm_share: float
    period_s: float
    eval_activity: float
    eval_s: float
    eval_every_s: float = NEVER_S


SHAPES = {
    "64node_gpt3": Shape(
        nodes=64,
        setup_s=1.9502,
        activity=0.9911,
        comm_activity=0.4297,
        comm_share=0.0781,
        period_s=10.77,
        eval_activity=0.774,
        eval_s=12.96,
        eval_every_s=142.14,
    ),
    "64node_llama2_70b_lora": Shape(
        nodes=64,
        setup_s=12.9115,
        activity=0.7303,
        comm_activity=0.8016,
        comm_share=0.2524,
        period_s=4.0,
        eval_activity=0.1761,
        eval_s=1.19,
        eval_every_s=6.0,
    ),
    "9node_unet3d": Shape(
        nodes=9,
        setup_s=4.595,
        activity=0.8889,
        comm_activity=0.897,
        comm_share=0.1022,
        period_s=4.0,
        eval_activity=0.4299,
        eval_s=4.9497,
        eval_every_s=30.0,
    ),
    "8node_llama2_70b_lora": Shape(
        nodes=8,
        setup_s=21.2459,
        activity=0.7618,
        comm_activity=0.8667,
        comm_share=0.1087,
        period_s=8.0,
        eval_activity=0.5483,
        eval_s=9.0422,
        eval_every_s=39.5,
    ),
    "8node_resnet": Shape(
        nodes=8,
        setup_s=4.0494,
        activity=0.6424,
        comm_activity=0.977,
        comm_share=0.0396,
        period_s=4.0,
        eval_activity=0.6625,
        eval_s=1.6696,
        eval_every_s=17.5,
    ),
    "8node_ssd": Shape(
        nodes=8,
        setup_s=3.1842,
        activity=0.7601,
        comm_activity=0.9162,
        comm_share=0.1185,
        period_s=4.0,
        eval_activity=0.3416,
        eval_s=5.0247,
        eval_every_s=93.5,
    ),
    "1node_bert": Shape(
        nodes=1,
        setup_s=2.0337,
        activity=0.9556,
        comm_activity=0.8919,
        comm_share=0.09,
        period_s=10.0,
        eval_activity=0.5736,
        eval_s=1.437,
        eval_every_s=19.6,
    ),
    "1node_dlrm_dcnv2": Shape(
        nodes=1,
        setup_s=2.5916,
        activity=0.996,
        comm_activity=1.0,
        comm_share=0.0512,
        period_s=10.0,
        eval_activity=0.9881,
        eval_s=0.774,
        eval_every_s=15.2,
    ),
    "1node_llama2_70b_lora": Shape(
        nodes=1,
        setup_s=1.9098,
        activity=1.25,
        comm_activity=0.8193,
        comm_share=0.0457,
        period_s=20.0,
        eval_activity=0.1491,
        eval_s=5.1539,
        eval_every_s=224.0,
    ),
    "1node_resnet": Shape(
        nodes=1,
        setup_s=2.3061,
        activity=0.9529,
        comm_activity=0.9738,
        comm_share=0.0495,
        period_s=10.0,
        eval_activity=0.7416,
        eval_s=2.3963,
        eval_every_s=91.6,
    ),
    "1node_ssd": Shape(
        nodes=1,
        setup_s=2.2318,
        activity=0.9867,
        comm_activity=0.9725,
        comm_share=0.0509,
        period_s=10.0,
        eval_activity=0.198,
        eval_s=31.4882,
        eval_every_s=542.0,
    ),
    "1node_unet3d": Shape(
        nodes=1,
        setup_s=2.1742,
        activity=1.25,
        comm_activity=1.0,
        comm_share=0.0149,
        period_s=8.0,
        eval_activity=1.1855,
        eval_s=1.2488,
        eval_every_s=7.8,
    ),
}


def measured_kind(name: str, shape: Shape) -> JobKind:
    """Return the kind of job that has ``shape``, with nothing left to chance."""
    return JobKind(
        name=name,
        stems=(name,),
        nodes=(shape.nodes,),
        activity=(shape.activity, shape.activity),
        comm_activity=shape.comm_activity,
        period_s=(shape.period_s, shape.period_s),
        comm_share=(shape.comm_share, shape.comm_share),
        checkpoint_every_s=(NEVER_S, NEVER_S),
        checkpoint_s=(1.0, 1.0),
        warmup_s=(shape.setup_s, shape.setup_s),
        warmup_activity=SETUP_ACTIVITY,
        mean_life_s=NEVER_S,
        mem_share=(0.9, 0.9),
        eval_every_s=(shape.eval_every_s, shape.eval_every_s),
        eval_s=(shape.eval_s, shape.eval_s),
        eval_activity=shape.eval_activity,
    )


MEASURED_KINDS = {name: measured_kind(name, shape) for name, shape in SHAPES.items()}
