"""Is the cluster limited by power, or by the GPUs that there are?"""

from __future__ import annotations

import math
from dataclasses import dataclass

from physics import power as watts
from physics.diagnose.answer import (
    Diagnosis,
    OneAtLeastOne,
    OneCount,
    OneNonNegative,
    OnePositive,
    Steps,
    quantity,
    question,
)
from physics.errors import ImpossibleArgumentError
from physics.law import require
from physics.power import POWER_EXPONENT

__all__ = ["power"]


@dataclass(frozen=True)
class _Gpu:
    """What one GPU draws at its TDP, at any speed, and what its host draws beside it."""

    tdp_w: float
    static_w: float
    host_w: float
    exponent: float

    def throughput(self, cap_w: float) -> float:
        """Return the relative throughput under a cap."""
        return float(
            watts.throughput_under_cap(
                cap_w=cap_w,
                static_w=self.static_w,
                dynamic_w=self.tdp_w - self.static_w,
                exponent=self.exponent,
            )
        )


@dataclass(frozen=True)
class _Rack:
    """A full rack at its TDP, the cap that cools it, and the share of it that needs none."""

    rack_w: float
    cap_w: float
    fitting_share: float


@question
def power(
    *,
    budget_w: OnePositive,
    pue: OneAtLeastOne,
    gpus: OneCount,
    tdp_w: OnePositive,
    static_w: OneNonNegative,
    host_w: OneNonNegative = 0.0,
    exponent: OnePositive = POWER_EXPONENT,
    gpus_per_rack: OneCount | None = None,
    rack_limit_w: OnePositive | None = None,
) -> Diagnosis:
    """Diagnose whether power or the number of GPUs is the limit, and what to do about it.

    The site admits ``floor(budget / (PUE · (TDP + host)))`` GPUs at their TDP. Where that is fewer
    than there are, two ways out are compared: to run that many and switch the others off, or to cap
    all of them at ``budget / (PUE · N) - host``, which leaves ``r = ((cap - P_static) /
    (TDP - P_static))^(1/n)`` of their throughput. With ``gpus_per_rack`` and ``rack_limit_w``, what
    the cooling of a rack takes (both, or neither), the rack is judged too. ``host_w`` is the host's
    power for each GPU. Valid for work that scales with the GPUs; see :mod:`physics.power` for the
    curve. Source: Fleet Foundations, thermal and power physics.
    """
    require(static_w < tdp_w, "static_w", "less than tdp_w")
    gpu = _Gpu(tdp_w, static_w, host_w, exponent)
    steps = Steps()
    admitted, cap_w = _site(steps, gpu, budget_w, pue, gpus)
    rack = _rack(steps, gpu, gpus_per_rack, rack_limit_w)
    binding_w = min(cap_w, rack.cap_w, tdp_w)
    figures = {
        "admitted_gpus": admitted,
        "facility_w": _load(steps, gpu, gpus, pue),
        "cap_w": binding_w,
    }
    if binding_w >= tdp_w:
        spare_w = budget_w - figures["facility_w"]
        verdict = (
            f"compute-limited: the site admits {quantity(admitted)} GPUs at their TDP, and there "
            f"are {quantity(gpus)}; {quantity(spare_w, 'W')} are left"
        )
        return Diagnosis("compute", verdict, _MORE_GPUS, figures, tuple(steps.lines))
    constraint = "rack cooling" if rack.cap_w < cap_w else "site power"
    fitting = min(admitted, gpus * rack.fitting_share)
    capped, fewer = _ways_out(steps, gpu, binding_w, gpus, fitting)
    figures |= {"capped_throughput": capped, "fewer_gpus_throughput": fewer}
    verdict = (
        f"limited by {constraint}: {quantity(fitting)} of {quantity(gpus)} GPUs can run at their "
        f"TDP; all of them can at {quantity(binding_w, 'W')}"
    )
    lever = _advice(binding_w, capped, fewer)
    if constraint == "rack cooling":
        lever += f" Or cooling that takes {quantity(rack.rack_w, 'W')} a rack."
    return Diagnosis(constraint, verdict, lever, figures, tuple(steps.lines))


def _site(steps: Steps, gpu: _Gpu, budget_w: float, pue: float, gpus: float) -> tuple[float, float]:
    admitted = watts.gpus_admitted(budget_w=budget_w, pue=pue, tdp_w=gpu.tdp_w, host_w=gpu.host_w)
    cap_w = watts.cap_for_budget_w(budget_w=budget_w, pue=pue, gpus=gpus, host_w=gpu.host_w)
    budget, tdp, host = (quantity(each, "W") for each in (budget_w, gpu.tdp_w, gpu.host_w))
    steps.add(
        "GPUs that the site admits",
        "floor(budget / (PUE · (TDP + host)))",
        f"floor({budget} / ({quantity(pue)} · ({tdp} + {host})))",
        admitted,
    )
    steps.add(
        "cap for all by site power",
        "max(budget / (PUE · N) - host, 0)",
        f"max({budget} / ({quantity(pue)} · {quantity(gpus)}) - {host}, 0)",
        cap_w,
        "W",
    )
    return float(admitted), float(cap_w)


def _load(steps: Steps, gpu: _Gpu, gpus: float, pue: float) -> float:
    it_w = watts.it_load_w(gpus=gpus, tdp_w=gpu.tdp_w, host_w=gpu.host_w)
    load_w = watts.facility_load_w(it_w=it_w, pue=pue)
    tdp, host = quantity(gpu.tdp_w, "W"), quantity(gpu.host_w, "W")
    numbers = f"{quantity(gpus)} · ({tdp} + {host}) · {quantity(pue)}"
    steps.add("facility load of all at TDP", "N · (TDP + host) · PUE", numbers, load_w, "W")
    return float(load_w)


def _rack(
    steps: Steps, gpu: _Gpu, gpus_per_rack: float | None, rack_limit_w: float | None
) -> _Rack:
    if gpus_per_rack is None and rack_limit_w is None:
        return _Rack(rack_w=0.0, cap_w=math.inf, fitting_share=1.0)
    if gpus_per_rack is None:
        raise ImpossibleArgumentError("gpus_per_rack", "given with rack_limit_w")
    if rack_limit_w is None:
        raise ImpossibleArgumentError("rack_limit_w", "given with gpus_per_rack")
    rack_w = watts.it_load_w(gpus=gpus_per_rack, tdp_w=gpu.tdp_w, host_w=gpu.host_w)
    # What holds for a site holds for a rack, whose limit is of IT power alone.
    limit = {"budget_w": rack_limit_w, "pue": 1.0, "host_w": gpu.host_w}
    cap_w = watts.cap_for_budget_w(gpus=gpus_per_rack, **limit)
    fitting = watts.gpus_admitted(tdp_w=gpu.tdp_w, **limit)
    each, most = quantity(gpus_per_rack), quantity(rack_limit_w, "W")
    tdp, host = quantity(gpu.tdp_w, "W"), quantity(gpu.host_w, "W")
    steps.add("rack at TDP", "n · (TDP + host)", f"{each} · ({tdp} + {host})", rack_w, "W")
    numbers = f"max({most} / {each} - {host}, 0)"
    steps.add("cap by rack cooling", "max(limit / n - host, 0)", numbers, cap_w, "W")
    numbers = f"floor({most} / ({tdp} + {host}))"
    steps.add("GPUs that a rack cools", "floor(limit / (TDP + host))", numbers, fitting)
    return _Rack(float(rack_w), float(cap_w), min(fitting / gpus_per_rack, 1.0))


def _ways_out(
    steps: Steps, gpu: _Gpu, cap_w: float, gpus: float, fitting: float
) -> tuple[float, float]:
    """Return the throughput of capping all, and of running fewer, over that of all at their TDP."""
    capped, fewer = gpu.throughput(cap_w), fitting / gpus
    cap, static, tdp = (quantity(each, "W") for each in (cap_w, gpu.static_w, gpu.tdp_w))
    if cap_w <= gpu.static_w:
        steps.say(f"throughput of all under the cap: 0, as {cap} is not over the static {static}")
    else:
        steps.add(
            "throughput of all under the cap",
            "((cap - P_static) / (TDP - P_static))^(1/n)",
            f"(({cap} - {static}) / ({tdp} - {static}))^(1 / {quantity(gpu.exponent)})",
            capped,
            "%",
        )
    numbers = f"{quantity(fitting)} / {quantity(gpus)}"
    steps.add("throughput of fewer at TDP", "fitting / N", numbers, fewer, "%")
    return capped, fewer


def _advice(cap_w: float, capped: float, fewer: float) -> str:
    if capped == fewer == 0.0:
        return "Not even one GPU fits: raise the power or the cooling, or draw less by hosts."
    cap, all_capped, some = quantity(cap_w, "W"), quantity(capped, "%"), quantity(fewer, "%")
    if capped >= fewer:
        return f"Cap all at {cap}: {all_capped} of full throughput, against {some} with fewer."
    return f"Run fewer at their TDP: {some} of full throughput, against {all_capped} under a cap."


_MORE_GPUS = "Power is not the limit: more GPUs, or more out of each, bring more work."
