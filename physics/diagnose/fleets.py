"""How many GPUs does it take?"""

from __future__ import annotations

from physics import scaling as scale
from physics.diagnose.answer import (
    Diagnosis,
    OnePositive,
    OnePositiveShare,
    OneShare,
    Steps,
    quantity,
    question,
    require_kind,
)
from physics.errors import ImpossibleArgumentError
from physics.scaling import TEXTBOOK_TABLE_5, CompoundLoss, EfficiencyTable

__all__ = ["gpus_needed"]


@question
def gpus_needed(
    *,
    parameters: OnePositive,
    tokens: OnePositive,
    time_s: OnePositive,
    peak_flops: OnePositive,
    mfu: OnePositiveShare,
    goodput: OnePositiveShare,
    table: EfficiencyTable = TEXTBOOK_TABLE_5,
    loss_per_doubling: OneShare | None = None,
) -> Diagnosis:
    """Answer "how many GPUs do I need?" to train P parameters on D tokens in a time.

    The smallest N with ``N · R_peak · MFU · eta(N) · goodput >= 6 P D / t``; eta by the table. For
    a rate of tokens per day, give those tokens and a day. Each loss is named; the largest is the
    constraint. Refuses what no N of the table reaches. Source: Fleet Foundations, scaling physics.
    """
    require_kind("table", table, EfficiencyTable)
    needed = scale.needed_rate_flops(parameters=parameters, tokens=tokens, time_s=time_s)
    gpus = _fewest(needed, peak_flops, mfu, goodput, table, loss_per_doubling)
    efficiency = scale.efficiency_at(gpus=gpus, table=table, loss_per_doubling=loss_per_doubling)
    loss = scale.compound_loss(
        gpus=gpus, peak_flops=peak_flops, mfu=mfu, efficiency=efficiency, goodput=goodput
    )
    run = scale.training_time(
        parameters=parameters,
        tokens=tokens,
        gpus=gpus,
        effective_rate_flops=loss.effective_rate_flops,
    )
    steps = Steps()
    _show_need(steps, parameters, tokens, time_s, needed)
    _show_rate(steps, gpus, peak_flops, (mfu, efficiency, goodput), loss)
    _show_losses(steps, loss)
    numbers = f"{quantity(run.work_flop, 'FLOP')} / {quantity(loss.effective_rate_flops, 'FLOP/s')}"
    steps.add("time", "6 P D / R_eff", numbers, run.time_s, "s")
    constraint, lever = _largest(loss)
    figures = {
        "gpus": gpus,
        "gpus_at_peak": needed / peak_flops,
        "efficiency": efficiency,
        "useful_share": loss.useful_share,
        "effective_rate_flops": loss.effective_rate_flops,
        "time_s": run.time_s,
        "gpu_time_h": run.gpu_time_h,
    }
    verdict = (
        f"{quantity(gpus)} GPUs: {quantity(loss.useful_share, '%')} of their peak trains. "
        f"{_doubled(steps, gpus, efficiency, table, loss_per_doubling)}"
    )
    return Diagnosis(constraint, verdict, lever, figures, tuple(steps.lines))


def _fewest(
    needed: float,
    peak_flops: float,
    mfu: float,
    goodput: float,
    table: EfficiencyTable,
    loss_per_doubling: float | None,
) -> float:
    try:
        gpus = scale.gpus_for_rate(
            target_rate_flops=needed,
            peak_flops=peak_flops,
            mfu=mfu,
            goodput=goodput,
            table=table,
            loss_per_doubling=loss_per_doubling,
        )
    except ImpossibleArgumentError as exc:
        # The rate is not an argument here: it is the time that asks for too much.
        raise ImpossibleArgumentError(
            "time_s", f"so long that its rate is {exc.requirement}"
        ) from exc
    return float(gpus)


def _show_need(
    steps: Steps, parameters: float, tokens: float, time_s: float, needed: float
) -> None:
    numbers = f"6 · {quantity(parameters)} · {quantity(tokens)} / {quantity(time_s, 's')}"
    steps.add("needed rate", "6 P D / t", numbers, needed, "FLOP/s")


def _show_rate(
    steps: Steps,
    gpus: float,
    peak_flops: float,
    shares: tuple[float, float, float],
    loss: CompoundLoss,
) -> None:
    mfu, efficiency, goodput = (quantity(each, "%") for each in shares)
    steps.add(
        "R_eff",
        "N · R_peak · MFU · eta · goodput",
        f"{quantity(gpus)} · {quantity(peak_flops, 'FLOP/s')} · {mfu} · {efficiency} · {goodput}",
        float(loss.effective_rate_flops),
        "FLOP/s",
    )


def _losses(loss: CompoundLoss) -> dict[str, float]:
    return {
        "kernel efficiency": float(loss.lost_to_mfu_flops),
        "scaling": float(loss.lost_to_scaling_flops),
        "overheads": float(loss.lost_to_overhead_flops),
    }


def _show_losses(steps: Steps, loss: CompoundLoss) -> None:
    total = float(loss.total_peak_flops)
    for name, lost in _losses(loss).items():
        numbers = f"{quantity(lost, 'FLOP/s')} / {quantity(total, 'FLOP/s')}"
        steps.add(f"lost to {name}", "lost / total peak", numbers, lost / total, "%")


def _largest(loss: CompoundLoss) -> tuple[str, str]:
    losses = _losses(loss)
    name = max(losses, key=lambda each: losses[each])
    return name, _LEVERS[name]


def _doubled(
    steps: Steps,
    gpus: float,
    efficiency: float,
    table: EfficiencyTable,
    loss_per_doubling: float | None,
) -> str:
    """Say what twice the GPUs would bring."""
    twice = 2.0 * gpus
    if loss_per_doubling is None and twice > table.sizes[-1]:
        return "The table ends before twice as many."
    after = scale.efficiency_at(gpus=twice, table=table, loss_per_doubling=loss_per_doubling)
    speedup = 2.0 * after / efficiency
    numbers = f"2 · {quantity(after, '%')} / {quantity(efficiency, '%')}"
    steps.add("speedup of twice the GPUs", "2 · eta(2N) / eta(N)", numbers, speedup)
    return f"Twice as many would be {quantity(speedup)} times as fast, not 2 times."


_LEVERS = {
    "kernel efficiency": "Raise MFU: fused kernels, larger micro-batches, better overlap, FP8.",
    "scaling": "Raise scaling efficiency: longer steps, fewer bytes, parallelism by topology.",
    "overheads": "Raise goodput: ask failures and overheads where the time goes.",
}
