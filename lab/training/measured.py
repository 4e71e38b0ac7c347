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
    ``comm_share`` of it. Evaluations take ``eval_s`` and begin ``eval_every_s`` after each other,
    the first of them ``first_eval_s`` after the run began. These two are from the log of the run
    that the rest is fitted to. Before the first one it stands still for ``pause_s``.
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
    first_eval_s: float = 0.0
    pause_s: float = 0.0

    @property
    def eval_from_s(self) -> float:
        """How long after the setup the first span begins that an evaluation ends, s."""
        return self.first_eval_s - self.setup_s - (self.eval_every_s - self.eval_s)


SHAPES = {
    "64node_gpt3": Shape(
        nodes=64,
        setup_s=2.0471,
        activity=0.9904,
        comm_activity=0.3908,
        comm_share=0.0759,
        period_s=10.77,
        eval_activity=0.7789,
        eval_s=12.96,
        eval_every_s=142.15,
        first_eval_s=130.17,
    ),
    "64node_llama2_70b_lora": Shape(
        nodes=64,
        setup_s=11.4725,
        activity=0.7413,
        comm_activity=0.7706,
        comm_share=0.3643,
        period_s=4.0,
        eval_activity=0.2804,
        eval_s=1.3587,
        eval_every_s=5.93,
        first_eval_s=73.75,
        pause_s=15.1074,
    ),
    "9node_unet3d": Shape(
        nodes=9,
        setup_s=4.8926,
        activity=0.8404,
        comm_activity=0.4413,
        comm_share=0.1221,
        period_s=4.0,
        eval_activity=0.9094,
        eval_s=0.8886,
        eval_every_s=1.02,
        first_eval_s=51.05,
    ),
    "8node_llama2_70b_lora": Shape(
        nodes=8,
        setup_s=13.5302,
        activity=0.7624,
        comm_activity=0.5455,
        comm_share=0.0593,
        period_s=8.0,
        eval_activity=0.5338,
        eval_s=9.0798,
        eval_every_s=39.52,
        first_eval_s=152.07,
        pause_s=13.5931,
    ),
    "8node_resnet": Shape(
        nodes=8,
        setup_s=4.6855,
        activity=0.6408,
        comm_activity=1.0,
        comm_share=0.0451,
        period_s=4.0,
        eval_activity=0.6714,
        eval_s=1.7294,
        eval_every_s=17.17,
        first_eval_s=14.54,
    ),
    "8node_ssd": Shape(
        nodes=8,
        setup_s=1.5889,
        activity=0.7549,
        comm_activity=0.8126,
        comm_share=0.0782,
        period_s=4.0,
        eval_activity=0.2527,
        eval_s=4.452,
        eval_every_s=93.23,
        first_eval_s=90.41,
    ),
    "1node_bert": Shape(
        nodes=1,
        setup_s=3.081,
        activity=0.9555,
        comm_activity=0.9138,
        comm_share=0.0665,
        period_s=10.0,
        eval_activity=0.5923,
        eval_s=1.6136,
        eval_every_s=19.73,
        first_eval_s=19.23,
    ),
    "1node_dlrm_dcnv2": Shape(
        nodes=1,
        setup_s=3.1782,
        activity=0.9965,
        comm_activity=1.0,
        comm_share=0.0587,
        period_s=10.0,
        eval_activity=0.9844,
        eval_s=0.8699,
        eval_every_s=15.08,
        first_eval_s=13.6,
    ),
    "1node_llama2_70b_lora": Shape(
        nodes=1,
        setup_s=2.3772,
        activity=1.25,
        comm_activity=0.8377,
        comm_share=0.0856,
        period_s=20.0,
        eval_activity=0.4536,
        eval_s=3.1686,
        eval_every_s=224.08,
        first_eval_s=759.03,
        pause_s=19.1501,
    ),
    "1node_resnet": Shape(
        nodes=1,
        setup_s=2.5708,
        activity=0.9533,
        comm_activity=0.9705,
        comm_share=0.0542,
        period_s=10.0,
        eval_activity=0.792,
        eval_s=3.0695,
        eval_every_s=91.17,
        first_eval_s=72.13,
    ),
    "1node_ssd": Shape(
        nodes=1,
        setup_s=2.3009,
        activity=0.9868,
        comm_activity=0.9707,
        comm_share=0.049,
        period_s=10.0,
        eval_activity=0.2128,
        eval_s=31.4365,
        eval_every_s=541.99,
        first_eval_s=518.81,
    ),
    "1node_unet3d": Shape(
        nodes=1,
        setup_s=2.328,
        activity=1.25,
        comm_activity=1.0,
        comm_share=0.0084,
        period_s=8.0,
        eval_activity=1.1615,
        eval_s=1.2583,
        eval_every_s=7.66,
        first_eval_s=301.89,
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
        eval_from_s=shape.eval_from_s,
        eval_pause_s=shape.pause_s,
        eval_activity=shape.eval_activity,
    )


MEASURED_KINDS = {name: measured_kind(name, shape) for name, shape in SHAPES.items()}
