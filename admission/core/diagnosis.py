"""From what is known of one job to what binds it and what to move, with the arithmetic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.core.account import LEVERS, Cause
from admission.core.failures import Cause as FailureCause
from admission.core.outlook import CheckpointAdvice, GpuRate
from admission.core.stragglers import Straggler
from physics import diagnose
from physics.diagnose.answer import Steps, quantity

__all__ = [
    "Found",
    "of_account",
    "of_failure",
    "of_failures_ahead",
    "of_slow_gpu",
    "of_straggler",
]

#: Less of its time is not worth a look, share.
_SMALL = 0.02
#: What helps against each cause of failures.
_AGAINST = {
    FailureCause.HARDWARE: "have the node drained and serviced; let the job restart elsewhere "
    "(restart.tolerance)",
    FailureCause.PLANT: "look at the feed or the cooling of the place; let the job restart "
    "elsewhere (restart.tolerance)",
    FailureCause.NETWORK: "look at the links between its nodes; place it behind one switch",
    FailureCause.SOFTWARE: "read what it said last: headroom logs JOB",
    FailureCause.UNKNOWN: "look at the node: it went without a trace",
}
#: What helps where it is known what failed, by component, before that.
_AGAINST_WHAT = {
    (FailureCause.NETWORK, "storage"): "look at the store that it could not read or write, and at "
    "who else uses it",
    (FailureCause.NETWORK, "service"): "look at the service that it could not reach: headroom logs "
    "JOB says which",
    (FailureCause.UNKNOWN, "collective"): "look for the rank that did not come to the collective: "
    "headroom logs JOB has what each said last",
    (FailureCause.UNKNOWN, "gpu"): "CUDA did not say why: read headroom logs JOB, and see whether "
    "jobs fail there again",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What binds a job: a stable token, a sentence, what to move, and how that was reckoned."""

    constraint: str
    verdict: str
    lever: str
    steps: tuple[str, ...] = ()


def of_failure(attempt: str, ended: str, cause: FailureCause, component: str) -> Found:
    """Return what ended an attempt; ``ended`` is how, such as "was lost"."""
    what = component.replace("_", " ")
    lever = _AGAINST_WHAT.get((cause, component), _AGAINST[cause])
    return Found(f"failure_{cause.value}", f"{attempt} {ended}: {cause.value}, {what}", lever)


def of_account(causes: Mapping[str, int]) -> Found | None:
    """Return what takes most of a job's time, of µs by cause; None: it held nothing.

    The lost time that could be won is shown as the speed that the same GPUs would reach without it:
    ``productive / held`` against ``productive / (held - lost)``.
    """
    held = sum(causes.values())
    if not held:
        return None
    shares = {name: us / held for name, us in causes.items() if us}
    lost = {name: each for name, each in shares.items() if LEVERS[name] and name != Cause.UNKNOWN}
    unknown = shares.get(Cause.UNKNOWN, 0.0)
    worst = max(lost, key=lambda name: lost[name], default="")
    steps = _steps(causes, held, worst)
    if unknown > max(lost.get(worst, 0.0), _SMALL):
        verdict = f"nothing tells what it did in {quantity(unknown, '%')} of its time"
        return Found(Cause.UNKNOWN.value, verdict, LEVERS[Cause.UNKNOWN], steps)
    if not worst or lost[worst] < _SMALL:
        productive = quantity(shares.get(Cause.PRODUCTIVE, 0.0), "%")
        verdict = (
            f"{productive} of its time is productive, and no loss is over {quantity(_SMALL, '%')}"
        )
        return Found("none", verdict, "look at its kernels: its account shows nothing", steps)
    verdict = f"{worst.replace('_', ' ')} takes {quantity(lost[worst], '%')} of its time"
    return Found(worst, verdict, LEVERS[worst], steps)


def of_straggler(attempt: str, found: Straggler) -> Found:
    """Return how a rank holds, or held, its gang back: ``1 - 1 / slower`` of the others' time."""
    steps = Steps()
    numbers = f"{found.windows} / {found.of}"
    steps.add("of what was looked at", "windows / all", numbers, found.windows / found.of, "%")
    numbers = f"1 - 1 / {quantity(found.slower)}"
    steps.add("the others wait", "1 - 1 / slower", numbers, found.lost_share, "%")
    verb = "holds" if found.is_last else "held"
    return Found(
        "straggler",
        f"rank {found.rank} {verb} {attempt} back: its steps take {quantity(found.slower, 'x')} as "
        "long as the median rank's, without waiting for others",
        "look at the machine and the GPU of that rank, and at what else runs there; is its share "
        "of the work larger?",
        tuple(steps.lines),
    )


def of_slow_gpu(attempt: str, gpu: str, own_mhz: float, peers_mhz: float, among: str) -> Found:
    """Return how a GPU holds a gang back by its clock: all others wait for it."""
    steps = Steps()
    numbers = f"{quantity(own_mhz)} MHz / {quantity(peers_mhz)} MHz"
    steps.add("clock", "own / peers", numbers, own_mhz / peers_mhz, "%")
    return Found(
        "slow_gpu",
        f"{gpu} of {attempt} runs at {quantity(own_mhz)} MHz, its peers of the {among} under the "
        f"same load at {quantity(peers_mhz)}",
        "see why on its page; have jobs avoid it until it is serviced",
        tuple(steps.lines),
    )


def of_failures_ahead(
    rate: GpuRate, gpus: int, work_s: float, advice: CheckpointAdvice, restart_s: float
) -> Found | None:
    """Return what failures will cost a job, by :func:`physics.diagnose.failures`.

    None where none was seen, or nothing is left to do.
    """
    if rate.per_s <= 0.0 or work_s <= 0.0:
        return None
    found = diagnose.failures(
        gpus=gpus, component_mtbf_s=1.0 / rate.per_s, work_s=work_s, checkpoint_s=advice.save_s,
        restart_s=restart_s, interval_s=advice.interval_s,
    )  # fmt: skip
    token = f"failures_{found.constraint.replace(' ', '_')}"
    return Found(token, found.verdict, found.lever, found.steps)


def _steps(causes: Mapping[str, int], held: int, worst: str) -> tuple[str, ...]:
    steps = Steps()
    told = sorted(((us, name) for name, us in causes.items() if us), reverse=True)
    for us, name in told:
        numbers = f"{quantity(us / 3.6e9)} h / {quantity(held / 3.6e9)} h"
        steps.add(name.replace("_", " "), "GPU time / held", numbers, us / held, "%")
    if worst:
        share = causes[worst] / held
        numbers = f"1 / (1 - {quantity(share, '%')})"
        steps.add(f"speed without {worst.replace('_', ' ')}", "1 / (1 - lost)", numbers,
                  1.0 / (1.0 - share) if share < 1.0 else float("inf"), "x")  # fmt: skip
    return tuple(steps.lines)
