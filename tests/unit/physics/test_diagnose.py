from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics import comm, diagnose, reliability
from physics import scaling as scale
from physics.diagnose import Diagnosis
from physics.diagnose.answer import quantity
from physics.diagnose.fits import PARADIGMS
from physics.errors import ImpossibleArgumentError
from physics.goodput import TEXTBOOK_BUDGET, LossShares
from physics.hardware import TEXTBOOK
from physics.law import arguments_of
from physics.scaling import TEXTBOOK_TABLE_5

RUN: dict[str, Any] = {"throughput_ratio": 2.5, "reference_gpus": 1024, "gpus": 4096}
#: "350M, data parallel" of the textbook on the network that it names.
STEP: dict[str, Any] = {
    "ranks": 256,
    "ranks_per_node": 8,
    "message_bytes": 680e6,
    "compute_s": 10e-3,
    "node_link_bytes_per_s": 450e9,
    "node_latency_s": 0.5e-6,
    "rails": 8,
    "link_bytes_per_s": 50e9,
    "latency_s": 5e-6,
}
TRAINING: dict[str, Any] = {
    "parameters": 70e9,
    "tokens": 2e12,
    "time_s": 30 * 86_400.0,
    "peak_flops": 989e12,
    "mfu": 0.5,
    "goodput": 0.77,
}
JOB: dict[str, Any] = {
    "gpus": 8192,
    "component_mtbf_s": TEXTBOOK.component("GPU").mtbf_s,
    "work_s": 30 * 86_400.0,
    "checkpoint_s": 24.5,
    "restart_s": 600.0,
}
SITE: dict[str, Any] = {
    "budget_w": 10e6,
    "pue": 1.12,
    "gpus": 8192,
    "tdp_w": 700.0,
    "static_w": 100.0,
    "host_w": 575.0,
}
FLEET_JOB: dict[str, Any] = {
    "gpus": 8192,
    "component_mtbf_s": TEXTBOOK.component("GPU").mtbf_s,
    "work_s": 86_400.0,
    "synchronizations_per_s": 0.2,
}
#: 20 % of the peak of 1,024 GPUs with a model of 70e9 parameters.
SLOW_RUN: dict[str, Any] = {
    "throughput_tokens_per_s": 0.2 * 1024 * 989e12 / (6.0 * 70e9),
    "parameters": 70e9,
    "peak_flops": 989e12,
    "gpus": 1024,
}
DECODE: dict[str, Any] = {
    "peak_flops": 989e12,
    "memory_bytes_per_s": 3.35e12,
    "intensity_flop_per_byte": 1.0,
}

CASES: list[tuple[Callable[..., Diagnosis], Mapping[str, Any]]] = [
    (diagnose.scaling, RUN),
    (diagnose.scaling, RUN | {"reference_efficiency": 0.6, "communication_s": 3, "compute_s": 2}),
    (diagnose.communication, STEP),
    (diagnose.communication, STEP | {"bus_bandwidth_bytes_per_s": 80e9}),
    (diagnose.communication, STEP | {"ranks": 8, "message_bytes": 16e6}),
    (diagnose.gpus_needed, TRAINING),
    (diagnose.gpus_needed, TRAINING | {"tokens": 15e12, "loss_per_doubling": 0.05}),
    (diagnose.failures, JOB),
    (diagnose.failures, JOB | {"interval_s": 3600.0, "queue_wait_s": 900.0}),
    (diagnose.paradigm, FLEET_JOB),
    (diagnose.power, SITE),
    (diagnose.power, SITE | {"gpus": 4096, "gpus_per_rack": 32, "rack_limit_w": 30e3}),
    (diagnose.overheads, {"pipeline_bubble_share": 0.05, "recovery_share": 0.17}),
    (diagnose.kernel, DECODE),
    (diagnose.utilization, SLOW_RUN),
    (diagnose.utilization, SLOW_RUN | {"data_wait_share": 0.5, "throttled_share": 0.1}),
    (
        diagnose.kernel,
        DECODE
        | {
            "intensity_flop_per_byte": 400.0,
            "network_bytes_per_s": 50e9,
            "network_intensity_flop_per_byte": 6144.0,
            "measured_flops": 200e12,
        },
    ),
]

PREFIXES = {"": 1.0} | {each: 1000.0 ** (n + 1) for n, each in enumerate("kMGTPEZY")}
UNITS = {"%": 0.01, "points": 0.01, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
UNITS |= {"min": 60.0, "h": 3600.0, "d": 86_400.0}
UNITS |= {
    prefix + unit: factor
    for prefix, factor in PREFIXES.items()
    for unit in ("B", "B/s", "W", "FLOP", "FLOP/s", "FLOP/B")
}
NUMBER = re.compile(
    r"(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)(?: ("
    + "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
    + r"))?(?![\w/])"
)
FUNCTIONS = {"floor": math.floor, "sqrt": math.sqrt, "exp": math.exp, "max": max}


def worked_out(expression: str) -> float:
    """Return the value of an expression as a step prints it, in SI units."""

    def number(match: re.Match[str]) -> str:
        return f"({match[1].replace(',', '')}*{UNITS[match[2]] if match[2] else 1.0!r})"

    code = NUMBER.sub(number, expression).replace("·", "*").replace("^", "**")
    return float(eval(code, {"__builtins__": {}}, FUNCTIONS))  # of our own making


@pytest.mark.parametrize(("ask", "case"), CASES)
def test_every_step_works_out(ask: Callable[..., Diagnosis], case: Mapping[str, Any]) -> None:
    answer = ask(**case)
    equations = [step.rsplit(" = ", 2) for step in answer.steps if " = " in step]
    assert len(equations) >= 3
    for left, numbers, result in equations:
        assert left
        # Four digits are printed, of terms up to 1 where shares are subtracted.
        assert worked_out(numbers) == pytest.approx(worked_out(result), rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("ask", "case"), CASES)
def test_a_diagnosis_says_all_that_it_found(
    ask: Callable[..., Diagnosis], case: Mapping[str, Any]
) -> None:
    answer = ask(**case)
    assert all(isinstance(each, float) and math.isfinite(each) for each in answer.figures.values())
    text = answer.as_text()
    for part in (answer.constraint, answer.verdict, answer.lever, *answer.steps):
        assert part
        assert part in text


@pytest.mark.parametrize("ask", [getattr(diagnose, name) for name in diagnose.__all__[1:]])
def test_a_diagnosis_is_of_one_case_and_of_numbers(ask: Callable[..., Diagnosis]) -> None:
    case = next(dict(case) for each, case in reversed(CASES) if each is ask)
    for name, argument in arguments_of(ask).items():
        if argument.bound is None or name not in case:
            continue
        for wrong in (np.array([case[name], case[name]]), math.nan, -1.0):
            with pytest.raises(ImpossibleArgumentError) as refused:
                ask(**(case | {name: wrong}))
            assert refused.value.argument == name


@pytest.mark.parametrize(
    ("ask", "case", "argument"),
    [
        (diagnose.scaling, RUN, "table"),
        (diagnose.gpus_needed, TRAINING, "table"),
        (diagnose.overheads, {}, "budget"),
    ],
)
def test_a_table_of_the_wrong_type_is_refused(
    ask: Callable[..., Diagnosis], case: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        ask(**case, **{argument: "table 5"})
    assert refused.value.argument == argument


# How much of a larger run's loss is physics?


def test_two_and_a_half_times_on_four_times_the_gpus_is_an_engineering_problem() -> None:
    answer = diagnose.scaling(**RUN)
    assert answer.figures["relative_efficiency"] == 0.625
    assert answer.figures["absolute_efficiency"] == 0.3125
    assert answer.figures["table_efficiency"] == pytest.approx(0.40)
    assert answer.figures["distance_share"] == pytest.approx(-0.0875)
    assert answer.figures["table_throughput_ratio"] == pytest.approx(3.2)
    assert answer.constraint == "engineering"
    assert "8.75 points under the 40 %" in answer.verdict
    assert "engineering problem" in answer.verdict


def test_a_run_on_the_table_is_as_fast_as_such_runs_get() -> None:
    answer = diagnose.scaling(**(RUN | {"throughput_ratio": 3.2}))
    assert answer.constraint == "scale"
    assert "engineering" not in answer.verdict
    assert answer.figures["distance_share"] == pytest.approx(0.0, abs=1e-12)


def test_a_known_efficiency_of_the_smaller_run_counts_instead_of_the_table() -> None:
    answer = diagnose.scaling(**RUN, reference_efficiency=0.8)
    assert answer.figures["absolute_efficiency"] == pytest.approx(0.5)
    assert answer.constraint == "scale"


@pytest.mark.parametrize(
    ("communication_s", "ratio", "constraint"),
    [(0.5, 2.5, "overhead"), (2.0, 2.5, "communication"), (2.0, 3.9, "communication")],
)
def test_times_of_a_step_tell_whether_the_network_is_the_cause(
    communication_s: float, ratio: float, constraint: str
) -> None:
    case = RUN | {"throughput_ratio": ratio, "communication_s": communication_s, "compute_s": 1.0}
    assert diagnose.scaling(**case).constraint == constraint


@pytest.mark.parametrize(
    ("given_one", "missing"), [("compute_s", "communication_s"), ("communication_s", "compute_s")]
)
def test_one_time_of_a_step_without_the_other_is_refused(given_one: str, missing: str) -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        diagnose.scaling(**(RUN | {given_one: 1.0}))
    assert refused.value.argument == missing


def test_a_smaller_run_beyond_the_table_is_refused_by_its_own_name() -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        diagnose.scaling(throughput_ratio=1.5, reference_gpus=16_384, gpus=32_768)
    assert refused.value.argument == "reference_gpus"


def test_beyond_the_table_something_has_to_be_assumed() -> None:
    case: dict[str, Any] = {"throughput_ratio": 1.5, "reference_gpus": 8192, "gpus": 16_384}
    with pytest.raises(ImpossibleArgumentError) as refused:
        diagnose.scaling(**case)
    assert refused.value.argument == "gpus"
    answer = diagnose.scaling(**case, loss_per_doubling=0.05)
    assert answer.figures["table_efficiency"] == pytest.approx(0.30)


@given(ratio=st.floats(0.01, 8.0), eta0=st.floats(0.01, 1.0))
def test_the_verdict_on_a_run_is_the_sign_of_its_distance(ratio: float, eta0: float) -> None:
    answer = diagnose.scaling(**(RUN | {"throughput_ratio": ratio}), reference_efficiency=eta0)
    assert ("engineering" in answer.verdict) == (answer.figures["distance_share"] < -1e-9)


# Does communication hide?


def test_the_verdict_on_350m_flips_between_models() -> None:
    answer = diagnose.communication(**STEP)
    assert answer.figures["flat_ring_ratio"] == pytest.approx(2.964, abs=5e-4)
    assert answer.figures["hierarchical_ratio"] == pytest.approx(0.6255, abs=5e-5)
    assert answer.constraint == "computation"
    assert "flips" in answer.verdict
    assert "all 8 rails" in answer.lever


def test_a_measured_bandwidth_decides() -> None:
    answer = diagnose.communication(**STEP, bus_bandwidth_bytes_per_s=80e9)
    assert answer.figures["communication_ratio"] == answer.figures["measured_ratio"]
    assert answer.figures["measured_ratio"] == pytest.approx(1.693, abs=5e-4)
    assert answer.constraint == "communication bandwidth"
    assert "hierarchical promises rho 0.6255" in answer.lever


def test_models_that_agree_are_said_to() -> None:
    answer = diagnose.communication(**(STEP | {"compute_s": 5.0}))
    assert "every model says so" in answer.verdict
    assert "rails" not in answer.lever


@given(compute_s=st.floats(1e-5, 6e-3))
def test_accumulation_is_the_least_that_hides_communication(compute_s: float) -> None:
    answer = diagnose.communication(**(STEP | {"compute_s": compute_s}))
    found = re.search(r"over ([\d,]+) times the micro-batches", answer.lever)
    assert found
    times, rho = int(found[1].replace(",", "")), answer.figures["communication_ratio"]
    assert rho / times < 1.0 <= rho / (times - 1)


def test_the_number_of_fewer_gpus_is_the_most_that_hides_communication() -> None:
    case = STEP | {"compute_s": 5e-3}
    found = re.search(r"on ([\d,]+) GPUs", diagnose.communication(**case).lever)
    assert found
    fewer = int(found[1].replace(",", ""))

    def ratio(gpus: int) -> float:
        same_work = case | {"ranks": gpus, "compute_s": 5e-3 * 256 / gpus}
        return float(comm.ratio_by_model(**same_work).hierarchical_ratio)

    assert fewer % 8 == 0
    assert ratio(fewer) < 1.0 <= ratio(fewer + 8)


def test_a_short_message_over_many_ranks_is_bound_by_latency() -> None:
    case = STEP | {"ranks": 8192, "message_bytes": 1e6, "compute_s": 1e-3}
    answer = diagnose.communication(**case)
    assert answer.constraint == "communication latency"
    assert answer.figures["bandwidth_share"] < 0.01
    assert "fuse messages" in answer.lever


def test_one_node_has_no_fewer_nodes_to_go_to() -> None:
    answer = diagnose.communication(**(STEP | {"ranks": 8, "compute_s": 1e-3}))
    assert "in one node already" in answer.lever


def test_no_number_of_nodes_may_be_few_enough() -> None:
    answer = diagnose.communication(**(STEP | {"ranks": 16, "compute_s": 1e-4}))
    assert "No smaller number of nodes" in answer.lever


def test_one_rank_has_nobody_to_talk_to() -> None:
    answer = diagnose.communication(**(STEP | {"ranks": 1}))
    assert answer.figures["communication_ratio"] == 0.0
    assert answer.constraint == "computation"


# How many GPUs?


@given(days=st.floats(30.0, 1000.0), mfu=st.floats(0.2, 0.6))
def test_gpus_needed_are_the_fewest_that_are_enough(days: float, mfu: float) -> None:
    case = TRAINING | {"tokens": 1e12, "time_s": days * 86_400.0, "mfu": mfu}
    answer = diagnose.gpus_needed(**case)

    def rate(gpus: float) -> float:
        return float(
            scale.effective_rate_flops(
                gpus=gpus,
                peak_flops=case["peak_flops"],
                mfu=mfu,
                efficiency=scale.efficiency_at(gpus=gpus),
                goodput=case["goodput"],
            )
        )

    needed = 6.0 * case["parameters"] * case["tokens"] / case["time_s"]
    gpus = answer.figures["gpus"]
    assert rate(gpus) >= needed * (1.0 - 1e-9)
    assert gpus == 1.0 or rate(gpus - 1.0) < needed
    assert answer.figures["time_s"] <= case["time_s"] * (1.0 + 1e-9)
    assert answer.figures["gpus_at_peak"] <= gpus


def test_the_largest_loss_of_the_peak_is_the_constraint() -> None:
    assert diagnose.gpus_needed(**TRAINING).constraint == "kernel efficiency"
    lazy = diagnose.gpus_needed(**(TRAINING | {"mfu": 0.99, "goodput": 0.3, "tokens": 1e11}))
    assert lazy.constraint == "overheads"
    wide = diagnose.gpus_needed(**(TRAINING | {"mfu": 0.95, "tokens": 5e12}))
    assert wide.constraint == "scaling"


def test_twice_the_gpus_are_told_not_to_be_twice_as_fast() -> None:
    answer = diagnose.gpus_needed(**TRAINING)
    gpus = answer.figures["gpus"]
    speedup = 2.0 * scale.efficiency_at(gpus=2 * gpus) / scale.efficiency_at(gpus=gpus)
    assert f"Twice as many would be {quantity(speedup)} times as fast" in answer.verdict
    assert speedup < 2.0
    assert "The table ends" in diagnose.gpus_needed(**(TRAINING | {"tokens": 5e12})).verdict


def test_a_rate_in_reach_of_no_table_row_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="in reach of 8192 GPUs") as refused:
        diagnose.gpus_needed(**(TRAINING | {"time_s": 3600.0}))
    assert refused.value.argument == "time_s"


# How often does it fail?


def test_failures_at_eight_thousand_gpus_are_those_of_the_seed() -> None:
    answer = diagnose.failures(**JOB)
    assert answer.figures["system_mtbf_s"] / 3600.0 == pytest.approx(6.1, abs=0.05)
    assert answer.figures["failure_probability"] == pytest.approx(0.9804, abs=5e-5)
    assert answer.figures["young_interval_s"] > answer.figures["best_interval_s"]
    assert answer.figures["failures"] == pytest.approx(
        answer.figures["wall_s"] / answer.figures["system_mtbf_s"]
    )


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({}, "restart"),
        ({"restart_s": 1.0}, "rework"),
        ({"queue_wait_s": 3600.0}, "queue wait"),
        ({"interval_s": 60.0}, "checkpoint"),
        ({"interval_s": 7200.0}, "rework"),
    ],
)
def test_the_largest_cost_of_failures_is_the_constraint(
    change: dict[str, Any], constraint: str
) -> None:
    assert diagnose.failures(**(JOB | change)).constraint == constraint


@pytest.mark.parametrize(("interval_s", "often"), [(60.0, "less"), (7200.0, "more")])
def test_a_bad_interval_is_told_the_best_one(interval_s: float, often: str) -> None:
    answer = diagnose.failures(**JOB, interval_s=interval_s)
    best = reliability.optimal_interval_s(
        checkpoint_s=24.5, system_mtbf_s=answer.figures["system_mtbf_s"]
    )
    assert answer.lever.startswith(f"Checkpoint {often} often: every {quantity(best, 's')}")


def test_a_good_interval_is_left_alone() -> None:
    assert "often:" not in diagnose.failures(**JOB, interval_s=1000.0).lever


def test_free_checkpoints_need_an_interval() -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        diagnose.failures(**(JOB | {"checkpoint_s": 0.0}))
    assert refused.value.argument == "checkpoint_s"
    answer = diagnose.failures(**(JOB | {"checkpoint_s": 0.0, "interval_s": 600.0}))
    assert answer.constraint == "restart"


# Power or compute?


def test_a_site_that_admits_all_gpus_is_limited_by_compute() -> None:
    answer = diagnose.power(**(SITE | {"gpus": 4096}))
    assert answer.constraint == "compute"
    assert answer.figures["cap_w"] == 700.0
    assert answer.figures["admitted_gpus"] >= 4096


def test_capping_all_beats_running_fewer_where_hosts_draw_much() -> None:
    answer = diagnose.power(**SITE)
    assert answer.constraint == "site power"
    assert answer.figures["admitted_gpus"] == 7002.0
    assert answer.figures["cap_w"] == pytest.approx(514.9, abs=0.05)
    assert answer.figures["capped_throughput"] > answer.figures["fewer_gpus_throughput"]
    assert answer.lever.startswith("Cap all at 514.9 W")


def test_running_fewer_beats_a_cap_under_the_static_power() -> None:
    answer = diagnose.power(**(SITE | {"budget_w": 6e6}))
    assert answer.figures["capped_throughput"] == 0.0
    assert answer.figures["fewer_gpus_throughput"] > 0.5
    assert answer.lever.startswith("Run fewer")


def test_a_site_too_small_for_one_gpu_says_so() -> None:
    answer = diagnose.power(**(SITE | {"budget_w": 1000.0}))
    assert answer.figures["admitted_gpus"] == 0.0
    assert "Not even one GPU fits" in answer.lever


def test_a_rack_that_cooling_does_not_carry_is_the_limit() -> None:
    answer = diagnose.power(**(SITE | {"gpus": 4096}), gpus_per_rack=32, rack_limit_w=30e3)
    assert answer.constraint == "rack cooling"
    assert answer.figures["cap_w"] == 362.5
    assert answer.figures["fewer_gpus_throughput"] == 23 / 32
    assert "40.8 kW a rack" in answer.lever


def test_a_rack_that_cooling_carries_leaves_the_site_as_limit() -> None:
    answer = diagnose.power(**SITE, gpus_per_rack=16, rack_limit_w=30e3)
    assert answer.constraint == "site power"


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"static_w": 700.0}, "static_w"),
        ({"gpus_per_rack": 32}, "rack_limit_w"),
        ({"rack_limit_w": 30e3}, "gpus_per_rack"),
        ({"pue": 0.99}, "pue"),
    ],
)
def test_an_impossible_site_is_refused(change: dict[str, Any], argument: str) -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        diagnose.power(**(SITE | change))
    assert refused.value.argument == argument


@given(budget_w=st.floats(1e6, 3e7), gpus=st.integers(1, 20_000))
def test_the_plan_for_a_site_stays_within_its_budget(budget_w: float, gpus: int) -> None:
    answer = diagnose.power(**(SITE | {"budget_w": budget_w, "gpus": gpus}))
    drawn_w = gpus * (answer.figures["cap_w"] + SITE["host_w"]) * SITE["pue"]
    # Hosts alone may be over the budget: a cap of 0 W says so.
    assert drawn_w <= budget_w * (1.0 + 1e-9) or answer.figures["cap_w"] == 0.0
    assert (answer.constraint == "compute") == (answer.figures["facility_w"] <= budget_w)


# Which overhead?


def test_the_worst_excess_over_the_budget_is_the_constraint() -> None:
    answer = diagnose.overheads(checkpoint_share=0.06, recovery_share=0.12)
    assert answer.constraint == "checkpoint"
    assert "3 points over its budget" in answer.verdict
    assert "also over: recovery" in answer.verdict
    assert answer.figures["checkpoint_excess_share"] == pytest.approx(0.03)
    assert answer.figures["maintenance_excess_share"] == pytest.approx(-0.05)
    assert answer.figures["goodput"] == pytest.approx(0.82)
    assert answer.figures["budgeted_goodput"] == pytest.approx(TEXTBOOK_BUDGET.goodput())


def test_within_the_budget_the_largest_loss_is_next() -> None:
    answer = diagnose.overheads(recovery_share=0.08, checkpoint_share=0.02)
    assert answer.constraint == "recovery"
    assert "within its budget" in answer.verdict
    assert diagnose.overheads().constraint == "none"


def test_a_budget_of_ones_own_counts() -> None:
    answer = diagnose.overheads(recovery_share=0.08, budget=LossShares(recovery_share=0.01))
    assert answer.figures["recovery_excess_share"] == pytest.approx(0.07)


def test_losses_of_more_than_all_are_refused() -> None:
    with pytest.raises(ImpossibleArgumentError):
        diagnose.overheads(recovery_share=0.6, checkpoint_share=0.6)


# What does a kernel wait for?


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({}, "memory"),
        ({"intensity_flop_per_byte": 1000.0}, "compute"),
        (
            {
                "intensity_flop_per_byte": 1000.0,
                "network_bytes_per_s": 50e9,
                "network_intensity_flop_per_byte": 100.0,
            },
            "network",
        ),
    ],
)
def test_the_lowest_ceiling_is_the_constraint(change: dict[str, Any], constraint: str) -> None:
    answer = diagnose.kernel(**(DECODE | change))
    assert answer.constraint == constraint
    assert answer.verdict.startswith(f"{constraint}-bound")


def test_decode_on_an_h100_is_far_under_the_ridge_point() -> None:
    answer = diagnose.kernel(**DECODE)
    assert answer.figures["ridge_point_flop_per_byte"] == pytest.approx(295.2, abs=0.05)
    assert answer.figures["attainable_flops"] == 3.35e12


def test_a_kernel_far_under_its_roof_is_its_own_limit() -> None:
    slow = diagnose.kernel(**DECODE, measured_flops=1e12)
    assert "No ceiling binds yet" in slow.lever
    fast = diagnose.kernel(**DECODE, measured_flops=3.35e12)
    assert fast.figures["reached_share"] == 1.0
    assert "No ceiling" not in fast.lever


def test_a_kernel_over_its_roof_is_refused() -> None:
    with pytest.raises(ImpossibleArgumentError) as refused:
        diagnose.kernel(**DECODE, measured_flops=4e12)
    assert refused.value.argument == "measured_flops"


# How numbers are written


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "", "0"),
        (4096.0, "", "4,096"),
        (8.03e9, "", "8.03e9"),
        (1.5e-7, "", "1.5e-7"),
        (2.9644, "", "2.964"),
        (12_345.6, "", "12,346"),
        (-0.0875, "points", "-8.75 points"),
        (0.3125, "%", "31.25 %"),
        (0.5603625, "s", "560.4 ms"),
        (5e-6, "s", "5 µs"),
        (0.001, "s", "1 ms"),
        (0.0, "s", "0 s"),
        (90.0, "s", "90 s"),
        (600.0, "s", "10 min"),
        (21_972.65625, "s", "6.104 h"),
        (2_592_000.0, "s", "30 d"),
        (math.inf, "s", "infinite"),
        (1.4e10, "B", "14 GB"),
        (0.5, "B/s", "0.5 B/s"),
        (9.8e6, "W", "9.8 MW"),
        (0.0, "W", "0 W"),
        (6.3e24, "FLOP", "6.3 YFLOP"),
    ],
)
def test_quantities_read_well(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_the_table_taken_is_the_seeds_unless_another_is_given() -> None:
    ours = scale.EfficiencyTable(sizes=(1024, 4096), efficiencies=(0.9, 0.8), source="ours")
    answer = diagnose.scaling(**RUN, table=ours)
    assert answer.figures["table_efficiency"] == 0.8
    assert diagnose.scaling(**RUN, table=TEXTBOOK_TABLE_5) == diagnose.scaling(**RUN)


# Which paradigm fits


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (FLEET_JOB, "ML fleet"),
        # 11.6 % of days see a failure: a batch job that starts over gets through.
        (FLEET_JOB | {"gpus": 256}, "HPC"),
        (FLEET_JOB | {"gpus": 256, "work_s": 60 * 86_400.0}, "ML fleet"),
        (FLEET_JOB | {"synchronizations_per_s": 0.0}, "warehouse"),
        (FLEET_JOB | {"gpus": 1}, "warehouse"),
    ],
)
def test_the_paradigm_follows_from_coupling_and_failures(job: dict[str, Any], name: str) -> None:
    answer = diagnose.paradigm(**job)
    assert answer.constraint == name
    assert PARADIGMS[name].fault_model in answer.lever


def test_the_fleet_of_the_textbook_fails_in_98_percent_of_days() -> None:
    answer = diagnose.paradigm(**FLEET_JOB)
    assert answer.figures["failure_probability"] == pytest.approx(0.9804, abs=5e-5)


def test_the_paradigms_differ_in_every_dimension() -> None:
    rows = zip(*(vars(each).values() for each in PARADIGMS.values()), strict=True)
    assert [len(set(row)) for row in rows] == [3] * 8


# How much is waiting, and how much is kernels


@pytest.mark.parametrize(
    ("waits", "constraint"),
    [
        ({}, "kernels"),
        # A fifth of the peak in 4/5 of the time is 25 %: below the band still.
        ({"data_wait_share": 0.2}, "kernels"),
        # In 3/5 of the time it is 33 %: as good as any, so what waits is to blame.
        ({"data_wait_share": 0.1, "synchronization_share": 0.3}, "synchronization"),
        ({"throttled_share": 0.4}, "throttling"),
        ({"pipeline_bubble_share": 0.35}, "pipeline bubble"),
    ],
)
def test_a_low_mfu_is_of_kernels_until_waiting_explains_it(
    waits: dict[str, float], constraint: str
) -> None:
    assert diagnose.utilization(**(SLOW_RUN | waits)).constraint == constraint


def test_an_mfu_above_the_band_leaves_nothing_to_win() -> None:
    fast = SLOW_RUN | {"throughput_tokens_per_s": 3.0 * SLOW_RUN["throughput_tokens_per_s"]}
    answer = diagnose.utilization(**(fast | {"data_wait_share": 0.1}))
    assert answer.constraint == "none"
    assert answer.figures["speedup_to_high"] == 1.0


def test_waits_that_leave_too_little_time_for_the_work_are_refused() -> None:
    for wait in (0.9, 1.0):
        with pytest.raises(ImpossibleArgumentError) as refused:
            diagnose.utilization(**(SLOW_RUN | {"data_wait_share": wait}))
        assert refused.value.argument == "throttled_share"
