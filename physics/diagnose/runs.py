"""Two runs of one job: is the larger one as fast as it can be?"""

from __future__ import annotations

from physics import comm
from physics import scaling as scale
from physics.diagnose.answer import (
    Diagnosis,
    OneCount,
    OneNonNegative,
    OnePositive,
    OnePositiveShare,
    OneShare,
    Steps,
    quantity,
    question,
    require_kind,
)
from physics.errors import ImpossibleArgumentError
from physics.scaling import TEXTBOOK_TABLE_5, EfficiencyTable

__all__ = ["scaling"]

#: A run on the table is not under it by rounding.
_ROUNDING = 1e-9


@question
def scaling(
    *,
    throughput_ratio: OnePositive,
    reference_gpus: OneCount,
    gpus: OneCount,
    reference_efficiency: OnePositiveShare | None = None,
    table: EfficiencyTable = TEXTBOOK_TABLE_5,
    loss_per_doubling: OneShare | None = None,
    communication_s: OneNonNegative | None = None,
    compute_s: OnePositive | None = None,
) -> Diagnosis:
    """Diagnose "N GPUs give only r times the throughput of N0": physics or engineering?

    ``eta = r · N0 / N · eta0`` against the efficiency that a table of well-optimized runs has at N.
    Under the table: an engineering problem. On it or over it: as fast as such runs get. eta0 is
    ``reference_efficiency``, and the table's own value at N0 where it is not given. With the times
    of communication and of computation in a step (both, or neither) ``rho = T_comm / T_compute``
    tells whether communication is the cause. Beyond the table's last size ``loss_per_doubling`` is
    needed. Source: Fleet Foundations, scaling physics.
    """
    require_kind("table", table, EfficiencyTable)
    steps = Steps()
    eta0 = _reference(steps, reference_gpus, reference_efficiency, table, loss_per_doubling)
    measured = scale.measured_efficiency(
        throughput_ratio=throughput_ratio,
        reference_gpus=reference_gpus,
        gpus=gpus,
        reference_efficiency=eta0,
    )
    at_n = scale.efficiency_at(gpus=gpus, table=table, loss_per_doubling=loss_per_doubling)
    _show(steps, throughput_ratio, reference_gpus, gpus, eta0, measured)
    points = measured.absolute - at_n
    steps.say(f"the table has {quantity(at_n, '%')} at {quantity(gpus)} GPUs")
    steps.add(
        "distance",
        "eta - table",
        f"{quantity(measured.absolute, '%')} - {quantity(at_n, '%')}",
        points,
        "points",
    )
    reachable = _reachable(steps, reference_gpus, gpus, eta0, at_n)
    rho = _ratio(steps, communication_s, compute_s)
    constraint, verdict, lever = _judge(points, rho, at_n, measured.absolute)
    figures = {
        "relative_efficiency": measured.relative,
        "absolute_efficiency": measured.absolute,
        "reference_efficiency": eta0,
        "table_efficiency": at_n,
        "distance_share": points,
        "table_throughput_ratio": reachable,
    }
    if rho is not None:
        figures["communication_ratio"] = rho
    return Diagnosis(constraint, verdict, lever, figures, tuple(steps.lines))


def _reference(
    steps: Steps,
    gpus: float,
    given: float | None,
    table: EfficiencyTable,
    loss_per_doubling: float | None,
) -> float:
    if given is not None:
        steps.say(f"eta0 at {quantity(gpus)} GPUs is given: {quantity(given, '%')}")
        return given
    try:
        found = scale.efficiency_at(gpus=gpus, table=table, loss_per_doubling=loss_per_doubling)
    except ImpossibleArgumentError as exc:
        raise ImpossibleArgumentError("reference_gpus", exc.requirement) from exc
    steps.say(f"eta0 at {quantity(gpus)} GPUs from the table: {quantity(found, '%')}")
    return float(found)


def _show(
    steps: Steps,
    ratio: float,
    reference_gpus: float,
    gpus: float,
    eta0: float,
    measured: scale.MeasuredEfficiency,
) -> None:
    steps.add(
        "relative efficiency",
        "r · N0 / N",
        f"{quantity(ratio)} · {quantity(reference_gpus)} / {quantity(gpus)}",
        float(measured.relative),
        "%",
    )
    steps.add(
        "absolute efficiency eta",
        "relative · eta0",
        f"{quantity(float(measured.relative), '%')} · {quantity(eta0, '%')}",
        float(measured.absolute),
        "%",
    )


def _reachable(steps: Steps, reference_gpus: float, gpus: float, eta0: float, at_n: float) -> float:
    """Return the throughput, over that of the smaller run, that the table's efficiency gives."""
    reachable = gpus * at_n / (reference_gpus * eta0)
    numbers = f"{quantity(gpus)} · {quantity(at_n, '%')}"
    numbers += f" / ({quantity(reference_gpus)} · {quantity(eta0, '%')})"
    steps.add("throughput ratio at the table", "N · table / (N0 · eta0)", numbers, reachable)
    return reachable


def _ratio(steps: Steps, communication_s: float | None, compute_s: float | None) -> float | None:
    if communication_s is None and compute_s is None:
        return None
    if communication_s is None:
        raise ImpossibleArgumentError("communication_s", "given with compute_s")
    if compute_s is None:
        raise ImpossibleArgumentError("compute_s", "given with communication_s")
    answer = comm.communication_ratio(
        communication_s=communication_s, compute_s=compute_s, model="measured"
    )
    steps.add(
        "rho",
        "T_comm / T_compute",
        f"{quantity(communication_s, 's')} / {quantity(compute_s, 's')}",
        answer.ratio,
    )
    return float(answer.ratio)


def _judge(points: float, rho: float | None, at_n: float, absolute: float) -> tuple[str, str, str]:
    """Return constraint, verdict and lever."""
    below = points < -_ROUNDING
    verdict = (
        f"{quantity(-points, 'points')} under the {quantity(at_n, '%')} that well-optimized runs "
        "of this size reach: an engineering problem, there is something to fix"
        if below
        else f"{quantity(absolute, '%')} is what well-optimized runs of this size reach, or more: "
        "as fast as such runs get"
    )
    if rho is not None and rho >= 1.0:
        return "communication", f"{verdict}; rho {quantity(rho)}: communication-bound", _TALK_LESS
    if not below:
        return "scale", verdict, _GROW
    if rho is None:
        return "engineering", verdict, _MEASURE
    hidden = f"{verdict}; rho {quantity(rho)}: communication could hide behind computation"
    return "overhead", hidden, _OVERHEAD


_TALK_LESS = (
    "Make steps longer (gradient accumulation, larger batch) or messages smaller; ask "
    "communication for how much."
)
_GROW = "More GPUs for the same work bring little. Give each GPU more work (weak scaling)."
_MEASURE = "Measure T_comm and T_compute of a step: they tell communication from other overheads."
_OVERHEAD = (
    "Not the network: look for communication that is not overlapped, stragglers, input, pipeline "
    "bubbles and checkpoints."
)
