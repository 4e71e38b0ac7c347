"""Is a training run slow in its kernels, or does it wait?"""

from __future__ import annotations

from physics import roofline
from physics.diagnose.answer import (
    Diagnosis,
    OneCount,
    OnePositive,
    OneShare,
    Steps,
    quantity,
    question,
)
from physics.law import require

__all__ = ["BANDS", "LEVERS", "utilization"]


@question
def utilization(
    *,
    throughput_tokens_per_s: OnePositive,
    parameters: OnePositive,
    peak_flops: OnePositive,
    gpus: OneCount,
    data_wait_share: OneShare = 0.0,
    synchronization_share: OneShare = 0.0,
    pipeline_bubble_share: OneShare = 0.0,
    throttled_share: OneShare = 0.0,
) -> Diagnosis:
    """Answer "why is its MFU so low?": how much of the loss is waiting, how much is kernels.

    ``MFU = tokens/s · 6 P / (N · R_peak)``, and ``MFU / (1 - waits)`` is that of the time in which
    GPUs compute. Shares are of the time of steps, as measured; they do not overlap. Where computing
    alone reaches the band of well-optimized runs (:func:`~physics.roofline.mfu_band`), the largest
    wait is the constraint, else kernels are. Source: Fleet Foundations, compute numbers.
    """
    waits = {
        "data wait": data_wait_share,
        "synchronization": synchronization_share,
        "pipeline bubble": pipeline_bubble_share,
        "throttling": throttled_share,
    }
    waiting = sum(waits.values())
    require(waiting < 1.0, "throttled_share", "below what the other waits leave of 1")
    mfu = roofline.model_flops_utilization(
        throughput_tokens_per_s=throughput_tokens_per_s,
        parameters=parameters,
        peak_flops=peak_flops,
        gpus=gpus,
    )
    busy = mfu / (1.0 - waiting)
    require(busy <= 1.0, "throttled_share", "such that the time that is left can do the work")
    steps = Steps()
    rate = f"{quantity(throughput_tokens_per_s)} · 6 · {quantity(parameters)}"
    numbers = f"{rate} / ({quantity(gpus)} · {quantity(peak_flops, 'FLOP/s')})"
    steps.add("MFU", "tokens/s · 6 P / (N · R_peak)", numbers, mfu, "%")
    numbers = " + ".join(quantity(each, "%") for each in waits.values())
    steps.add("waits", " + ".join(waits), numbers, waiting, "%")
    numbers = f"{quantity(mfu, '%')} / (1 - {quantity(waiting, '%')})"
    steps.add("MFU of computing", "MFU / (1 - waits)", numbers, busy, "%")
    band, computing = roofline.mfu_band(mfu=mfu), roofline.mfu_band(mfu=busy)
    constraint = _constraint(band.band, computing.band, waits)
    verdict = f"MFU {quantity(mfu, '%')}, {BANDS[band.band]}; {_rest(computing.band, busy)}"
    figures = {
        "mfu": mfu,
        "computing_mfu": busy,
        "waiting_share": waiting,
        "speedup_to_low": band.speedup_to_low,
        "speedup_to_high": band.speedup_to_high,
    }
    return Diagnosis(constraint, verdict, LEVERS[constraint], figures, tuple(steps.lines))


def _constraint(band: str, computing: str, waits: dict[str, float]) -> str:
    if band == "above":
        return "none"
    largest = max(waits, key=lambda each: waits[each])
    return "kernels" if computing == "below" or waits[largest] == 0.0 else largest


def _rest(computing: str, busy: float) -> str:
    said = f"while it computes, {quantity(busy, '%')}"
    if computing == "below":
        return f"{said}: its kernels are slow"
    return f"{said}: its kernels are as good as those of well-optimized runs"


#: An MFU beside that of well-optimized training, in words.
BANDS = {
    "below": "below the 30 to 50 % of well-optimized training",
    "within": "within the 30 to 50 % of well-optimized training",
    "above": "above the 30 to 50 % of well-optimized training",
}
#: What helps, by what binds.
LEVERS = {
    "none": "Nothing is to be won here: look at scaling efficiency and goodput.",
    "kernels": (
        "Stalls of memory, launches, operators that are not fused: fuse kernels, capture graphs, "
        "use larger micro-batches, FP8."
    ),
    "data wait": "Read ahead with more workers, from storage nearer to the GPUs.",
    "synchronization": "Find the slowest rank; overlap communication; make steps longer.",
    "pipeline bubble": "Run more microbatches through each pipeline stage.",
    "throttling": "Find what throttles: heat, power brake or cap; ask the throttle events.",
}
