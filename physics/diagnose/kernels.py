"""One kernel on one accelerator: what does it wait for?"""

from __future__ import annotations

from physics import roofline
from physics.diagnose.answer import (
    Diagnosis,
    OneNonNegative,
    OnePositive,
    Steps,
    quantity,
    question,
)
from physics.law import require

__all__ = ["kernel"]

_LEVERS = {
    "compute": "Faster memory changes nothing. Lower precision or more accelerators do.",
    "memory": (
        "Faster arithmetic changes nothing. Raise the intensity: batch more, fuse kernels, "
        "store fewer bytes per value."
    ),
    "network": (
        "Neither arithmetic nor memory is the limit. Do more work per byte sent: larger steps, "
        "smaller messages, parallelism that stays inside the node."
    ),
}
#: Under this share of the roof, something else than a ceiling holds the kernel back.
_HALF = 0.5
_UNDER = "No ceiling binds yet: look at launches, occupancy and waiting first. Then:"


@question
def kernel(
    *,
    peak_flops: OnePositive,
    memory_bytes_per_s: OnePositive,
    intensity_flop_per_byte: OneNonNegative,
    network_bytes_per_s: OnePositive | None = None,
    network_intensity_flop_per_byte: OneNonNegative | None = None,
    measured_flops: OnePositive | None = None,
) -> Diagnosis:
    """Diagnose a kernel by the roofline: ``min(R_peak, I · BW, I_net · BW_net)`` and what binds.

    ``intensity_flop_per_byte`` is I, useful FLOP per byte from memory. The network counts where
    both of its arguments are given. With ``measured_flops``, the rate that the kernel reaches, its
    share of what is attainable is shown too: far under it, no ceiling binds but the kernel itself.
    Source: Williams, Waterman and Patterson 2009; Fleet Foundations for the network.
    """
    ceilings = roofline.ceilings(
        peak_flops=peak_flops,
        memory_bytes_per_s=memory_bytes_per_s,
        intensity_flop_per_byte=intensity_flop_per_byte,
        network_bytes_per_s=network_bytes_per_s,
        network_intensity_flop_per_byte=network_intensity_flop_per_byte,
    )
    steps = Steps()
    ridge = _ridge(steps, peak_flops, memory_bytes_per_s)
    _ceiling(steps, "memory", "I · BW", intensity_flop_per_byte, memory_bytes_per_s, ceilings)
    if network_bytes_per_s is not None and network_intensity_flop_per_byte is not None:
        intensity = network_intensity_flop_per_byte
        _ceiling(steps, "network", "I_net · BW_net", intensity, network_bytes_per_s, ceilings)
    share = _share(steps, "attainable", ceilings.attainable_flops, "R_peak", peak_flops)
    verdict = (
        f"{ceilings.binding}-bound: at most {quantity(ceilings.attainable_flops, 'FLOP/s')}, "
        f"{quantity(share, '%')} of the peak"
    )
    lever = _LEVERS[ceilings.binding]
    figures = {
        "ridge_point_flop_per_byte": ridge,
        "attainable_flops": ceilings.attainable_flops,
        "attainable_share": share,
    }
    if measured_flops is not None:
        reached = _reached(steps, measured_flops, ceilings.attainable_flops)
        figures["reached_share"] = reached
        verdict += f"; {quantity(reached, '%')} of that is reached"
        lever = lever if reached >= _HALF else f"{_UNDER} {lever}"
    return Diagnosis(ceilings.binding, verdict, lever, figures, tuple(steps.lines))


def _ridge(steps: Steps, peak_flops: float, memory_bytes_per_s: float) -> float:
    ridge = roofline.ridge_point_flop_per_byte(
        peak_flops=peak_flops, memory_bytes_per_s=memory_bytes_per_s
    )
    numbers = f"{quantity(peak_flops, 'FLOP/s')} / {quantity(memory_bytes_per_s, 'B/s')}"
    steps.add("ridge point", "R_peak / BW", numbers, ridge, "FLOP/B")
    return float(ridge)


def _ceiling(
    steps: Steps,
    name: str,
    formula: str,
    intensity: float,
    bytes_per_s: float,
    ceilings: roofline.Ceilings,
) -> None:
    numbers = f"{quantity(intensity, 'FLOP/B')} · {quantity(bytes_per_s, 'B/s')}"
    steps.add(f"{name} ceiling", formula, numbers, getattr(ceilings, f"{name}_flops"), "FLOP/s")


def _share(steps: Steps, what: str, part: float, of: str, whole: float) -> float:
    numbers = f"{quantity(part, 'FLOP/s')} / {quantity(whole, 'FLOP/s')}"
    steps.add(f"{what} share", f"{what} / {of}", numbers, part / whole, "%")
    return part / whole


def _reached(steps: Steps, measured_flops: float, attainable_flops: float) -> float:
    # A rate computed from the ceiling itself may come out a rounding error above it.
    within = measured_flops <= attainable_flops * (1.0 + 1e-9)
    require(within, "measured_flops", f"at most {quantity(attainable_flops, 'FLOP/s')}, the roof")
    return _share(steps, "measured", measured_flops, "attainable", attainable_flops)
