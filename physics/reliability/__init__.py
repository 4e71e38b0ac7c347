"""Failures of a fleet, and what they cost a training job.

Failures are exponential (a constant rate) unless a law says otherwise; :func:`weibull_test` says
whether that is so.
"""

from physics.reliability.cost import (
    ExpectedRun,
    FirstOrderWaste,
    WallTimeShares,
    daly_first_order_interval_s,
    daly_interval_s,
    ettr,
    expected_run,
    first_order_waste,
    mtbf_for_ettr_s,
    optimal_interval_s,
    restart_for_ettr_s,
    wall_time_shares,
    young_interval_s,
)
from physics.reliability.failures import (
    FailureForecast,
    components_for_probability,
    expected_failures,
    failure_forecast,
    failure_probability,
    failures_at_percentile,
    mtbf_years,
    series_system_mtbf_s,
    system_mtbf_s,
    window_for_probability_s,
)
from physics.reliability.observed import (
    FEWEST_FAILURES,
    LemonNodes,
    MtbfEstimate,
    RateComparison,
    WeibullFit,
    compare_rates,
    estimate_mtbf,
    lemon_nodes,
    weibull_test,
)

__all__ = [
    "FEWEST_FAILURES",
    "ExpectedRun",
    "FailureForecast",
    "FirstOrderWaste",
    "LemonNodes",
    "MtbfEstimate",
    "RateComparison",
    "WallTimeShares",
    "WeibullFit",
    "compare_rates",
    "components_for_probability",
    "daly_first_order_interval_s",
    "daly_interval_s",
    "estimate_mtbf",
    "ettr",
    "expected_failures",
    "expected_run",
    "failure_forecast",
    "failure_probability",
    "failures_at_percentile",
    "first_order_waste",
    "lemon_nodes",
    "mtbf_for_ettr_s",
    "mtbf_years",
    "optimal_interval_s",
    "restart_for_ettr_s",
    "series_system_mtbf_s",
    "system_mtbf_s",
    "wall_time_shares",
    "weibull_test",
    "window_for_probability_s",
    "young_interval_s",
]
