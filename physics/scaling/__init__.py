"""What is left of N GPUs: scaling laws, a table of measured efficiency, and compound loss."""

from physics.scaling.laws import (
    MeasuredEfficiency,
    amdahl_limit,
    amdahl_serial_share,
    amdahl_speedup,
    gustafson_serial_share,
    gustafson_speedup,
    measured_efficiency,
    strong_scaling_efficiency,
    weak_scaling_efficiency,
)
from physics.scaling.layout import (
    gpus_total,
    microbatches_for_bubble,
    pipeline_bubble,
    torus_size,
)
from physics.scaling.loss import (
    CompoundLoss,
    TrainingTime,
    compound_loss,
    effective_rate_flops,
    lost_share,
    needed_rate_flops,
    total_peak_flops,
    training_time,
    useful_share,
)
from physics.scaling.table import (
    TEXTBOOK_TABLE_5,
    EfficiencyTable,
    efficiency_at,
    gpus_for_rate,
    gpus_worth,
    marginal_share,
)
from physics.scaling.usl import (
    UslFit,
    fit_usl,
    usl_peak_gpus,
    usl_speedup,
)

__all__ = [
    "TEXTBOOK_TABLE_5",
    "CompoundLoss",
    "EfficiencyTable",
    "MeasuredEfficiency",
    "TrainingTime",
    "UslFit",
    "amdahl_limit",
    "amdahl_serial_share",
    "amdahl_speedup",
    "compound_loss",
    "effective_rate_flops",
    "efficiency_at",
    "fit_usl",
    "gpus_for_rate",
    "gpus_total",
    "gpus_worth",
    "gustafson_serial_share",
    "gustafson_speedup",
    "lost_share",
    "marginal_share",
    "measured_efficiency",
    "microbatches_for_bubble",
    "needed_rate_flops",
    "pipeline_bubble",
    "strong_scaling_efficiency",
    "torus_size",
    "total_peak_flops",
    "training_time",
    "useful_share",
    "usl_peak_gpus",
    "usl_speedup",
    "weak_scaling_efficiency",
]
