"""Power of a whole facility, and the ratios that it is judged by."""

from __future__ import annotations

import numpy as np

from physics._bounds import AtLeastOne
from physics.law import Count, NonNegative, Positive, Values, law, require

J_PER_KWH = 3.6e6


@law
def it_load_w(*, gpus: Count, tdp_w: Positive, host_w: NonNegative = 0.0) -> Values:
    """Return the IT load of a fleet, W: ``N · (TDP + host)``.

    ``host_w`` is the host's power for each GPU. Left at 0 the answer is that of the accelerators
    alone, without hosts, NICs and switches: 7 MW for 10,000 H100, where DGX H100 nameplates
    (10.2 kW for 8) give 12.75 MW. All broadcast.
    """
    return gpus * (tdp_w + host_w)


@law
def facility_load_w(*, it_w: NonNegative, pue: AtLeastOne) -> Values:
    """Return the power of a facility, W: ``P_IT · PUE``. All broadcast.

    PUE is a yearly mean; on the hottest day, and at part load, it is higher. Source: The Green Grid
    2007, ISO/IEC 30134-2.
    """
    return it_w * pue


@law
def facility_overhead_w(*, it_w: NonNegative, pue: AtLeastOne) -> Values:
    """Return what a facility draws beside its IT, W: ``P_IT · (PUE - 1)``. All broadcast."""
    return it_w * (pue - 1.0)


@law
def pue_saving_w(*, it_w: NonNegative, pue: AtLeastOne, better_pue: AtLeastOne) -> Values:
    """Return what a better PUE saves, W: ``P_IT · (PUE - better PUE)``. All broadcast.

    Negative where ``better_pue`` is the worse one.
    """
    return it_w * (pue - better_pue)


@law
def pue(*, facility_w: NonNegative, it_w: Positive) -> Values:
    """Return the power usage effectiveness, no unit: ``P_facility / P_IT``, at least 1.

    Means of the same period (or energies in J). All broadcast. Source: ISO/IEC 30134-2.
    """
    require(np.greater_equal(facility_w, it_w), "facility_w", "at least it_w")
    return facility_w / it_w


@law
def wue_l_per_kwh(*, water_l: NonNegative, it_j: Positive) -> Values:
    """Return the water usage effectiveness, L/kWh: water used on site / energy of the IT.

    Both of the same period, best a year. All broadcast. Source: ISO/IEC 30134-9.
    """
    return water_l * J_PER_KWH / it_j


@law
def cue_kg_per_kwh(*, carbon_kg: NonNegative, it_j: Positive) -> Values:
    """Return the carbon usage effectiveness, kg CO2e/kWh: emissions / energy of the IT.

    Both of the same period, best a year. All broadcast. Source: ISO/IEC 30134-8.
    """
    return carbon_kg * J_PER_KWH / it_j


@law
def grid_cue_kg_per_kwh(*, intensity_g_per_kwh: NonNegative, pue: AtLeastOne) -> Values:
    """Return the CUE of a facility that lives from the grid, kg CO2e/kWh: ``intensity · PUE``.

    ``intensity_g_per_kwh`` is that of the grid, g CO2e/kWh. All broadcast. Source: ISO/IEC 30134-8.
    """
    return intensity_g_per_kwh * pue / 1000.0


@law
def gpus_admitted(
    *, budget_w: NonNegative, pue: AtLeastOne, tdp_w: Positive, host_w: NonNegative = 0.0
) -> Values:
    """Return how many GPUs a site's power admits: ``floor(budget / (PUE · (TDP + host)))``.

    ``budget_w`` is that of the whole facility, W; ``host_w`` the host's power for each GPU. All
    broadcast.
    """
    each_w = pue * (tdp_w + host_w)
    # 0.7 / 0.1 is a little under 7: rounding must not cost a GPU.
    return np.floor(budget_w / each_w * (1.0 + 1e-12))


@law
def cap_for_budget_w(
    *, budget_w: NonNegative, pue: AtLeastOne, gpus: Count, host_w: NonNegative = 0.0
) -> Values:
    """Return the cap at which all GPUs fit a site's power, W: ``budget / (PUE · N) - host``.

    At least 0; ``host_w`` is the host's power for each GPU, which the cap does not lower. A cap
    above the TDP says that power is no limit. All broadcast.
    """
    return np.maximum(budget_w / (pue * gpus) - host_w, 0.0)


@law
def rack_density_ratio(*, rack_w: NonNegative, reference_w: Positive) -> Values:
    """Return how many times as dense a rack is as a reference: ``P / P_reference``, no unit.

    All broadcast.
    """
    return rack_w / reference_w
