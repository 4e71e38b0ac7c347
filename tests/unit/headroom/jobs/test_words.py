"""What the command line says of jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from headroom.jobs import words
from tests.unit.headroom.jobs.answers import (
    NOW,
    at,
    make_dry_run,
    make_estimate,
    make_explained,
    make_explanation,
    make_fix,
    make_fleet_goodput,
    make_job,
    make_losses,
    make_phase,
    make_placement,
    make_queue,
    make_queued,
    make_reason,
    make_tried,
)


@pytest.mark.parametrize(
    ("p10_s", "p90_s", "said"),
    [
        (1080.0, 2100.0, "18\N{EN DASH}35 min"),
        (30.0, 45.0, "30\N{EN DASH}45 s"),
        (45.0, 600.0, "up to 10 min"),
        (600.0, 10_000.0, "up to 3 h"),
        (600.0, 600.0, "10 min"),
        (600.0, 610.0, "10\N{EN DASH}11 min"),
        (3 * 3600.0, 5 * 3600.0, "3\N{EN DASH}5 h"),
        (0.0, 0.0, "under 1 min"),
        (86_400.0, 90_000.0, "over a day"),
        (3 * 3600.0, 2 * 86_400.0, "over 3 h"),
        (None, None, ""),
    ],
)
def test_estimates_are_ranges(p10_s: float | None, p90_s: float | None, said: str) -> None:
    assert words.estimated(make_estimate(p10_s, p90_s)) == said


def test_why_a_job_waits_and_what_would_start_it() -> None:
    phase = make_explained(
        reasons=[
            make_reason(),
            make_reason("GpuShortage", sentence="needs 64 GPUs, and 8 are free"),
        ],
        counterfactuals=[make_fix(), make_fix("starts now at site bergen")],
    )
    assert list(words.explained(make_explanation(phase), make_job(), NOW)) == [
        "llama-ft-12/train waits, for 38 min now: needs 41.2 kW on feed b2, which has 36.8 kW: "
        "short 4.4 kW (FeedPowerHeadroom).",
        "  also: needs 64 GPUs, and 8 are free (GpuShortage)",
        "  starts now at 550 W per GPU (4 % slower)",
        "          or at site bergen",
        "  otherwise in 18\N{EN DASH}35 min",
        "  position 3 in the queue",
    ]


def test_what_decided_its_place_is_told_and_why_nobody_gives_way() -> None:
    decided = "priority 10; its project vision has had 20 % and is due 50 %; waited 38 min"
    trace = [
        {"check": "order", "passed": True, "sentence": f"3 of 40: {decided}"},
        {"check": "giving way", "passed": False, "sentence": "nobody may be asked"},
    ]
    phase = make_explained(trace=trace)
    assert list(words.explained(make_explanation(phase), make_job(), NOW))[-2:] == [
        f"  position 3 in the queue: {decided}",
        "  nobody gives way to it: nobody may be asked",
    ]


def test_why_a_job_that_runs_has_no_more_gpus_is_told() -> None:
    job = make_job(phases=[make_phase(state="running", started_at=None)])
    why = {"phase": "train", "sentence": "it may not be stopped (preemptible)"}
    answer = {**make_explanation(state="running", stays=[why]), "phases": []}
    assert list(words.explained(answer, job, NOW)) == [
        "llama-ft-12/train is running.",
        "  has no more of its GPUs: it may not be stopped (preemptible)",
    ]
    measured = {"phase": "train", "sentence": "100 samples/s on 1 GPU over 30 min"}
    lines = list(words.explained({**answer, "scaling": [measured]}, job, NOW))
    assert lines[-1] == "  measured: 100 samples/s on 1 GPU over 30 min"


def test_without_a_way_the_estimate_stands_alone() -> None:
    phase = make_explained(counterfactuals=[], estimate=make_estimate())
    lines = list(words.explained(make_explanation(phase), make_job(), NOW))
    assert lines[1] == "  likely to start in 18\N{EN DASH}35 min"


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        ("", "  when it will start cannot be said"),
        ("no estimates are made", "  when it will start cannot be said: no estimates are made"),
    ],
)
def test_that_nobody_knows_when_it_starts_is_said_and_why(basis: str, said: str) -> None:
    estimate = {**make_estimate(None, None), "basis": basis}
    phase = make_explained(counterfactuals=[], estimate=estimate)
    assert list(words.explained(make_explanation(phase), make_job(), NOW))[1] == said


def test_what_is_to_start_at_once_is_not_said_to_start_now() -> None:
    phase = make_explained(counterfactuals=[], estimate=make_estimate(0.0, 0.0))
    lines = list(words.explained(make_explanation(phase), make_job(), NOW))
    assert lines[1] == "  likely to start in under 1 min"


def test_what_can_never_begin_says_so_and_what_would_make_it_possible() -> None:
    never = {"reason": make_reason(), "ways": [make_fix("can start at 550 W per GPU (4 % slower)")]}
    phase = make_explained(counterfactuals=[], estimate=None, never=never)
    lines = list(words.explained(make_explanation(phase), make_job(), NOW))
    assert lines[1:3] == [
        "  never starts as it is, were the fleet all its own: needs 41.2 kW on feed b2, which has"
        " 36.8 kW: short 4.4 kW",
        "  once there is room, it can start at 550 W per GPU (4 % slower)",
    ]
    never["ways"] = []
    lines = list(words.explained(make_explanation(phase), make_job(), NOW))
    assert lines[2].startswith("  no cap, size, site or locality was found")


def test_phases_that_do_not_wait_are_told_as_they_are() -> None:
    done = make_phase("prepare", state="succeeded")
    runs = make_phase("train", state="running", started_at=at(300))
    lines = list(words.explained(make_explanation(phases=[]), make_job(phases=[done, runs]), NOW))
    assert lines == [
        "llama-ft-12/prepare has succeeded.",
        "llama-ft-12/train is running, begun 5 min ago.",
    ]
    over = make_explanation(state="cancelled", phases=[])
    assert list(words.explained(over, make_job(), NOW)) == ["llama-ft-12 is over: cancelled."]
    attempts = [{"energy_j": 1.8e6}, {"energy_j": None}, {"energy_j": 2.7e6}]
    job = {**make_job(), "phases": [{"name": "train", "attempts": attempts}]}
    (said,) = words.explained(over, job, NOW)
    assert said == "llama-ft-12 is over: cancelled. Its GPUs used 1.25 kWh."


def make_checkpoint(site: str, **given: Any) -> dict[str, Any]:
    whole = {
        "site": site, "run": "gpt", "step": 1200, "saved_at": at(300), "verified_at": at(240),
        "told_at": at(10), "lag_checkpoints": None, "lag_steps": None, "lag_s": None,
        "lag_bytes": None,
    }  # fmt: skip
    return {**whole, **given}


def test_it_is_said_which_checkpoint_is_where_and_how_far_the_other_site_is_behind() -> None:
    attempt = {"state": "running", "started_at": at(900), "checkpoint_at": at(300)}
    job = make_job(phases=[make_phase("train", state="running", attempts=[attempt])])
    behind = {"lag_checkpoints": 2, "lag_bytes": 3e9}
    job["checkpoints"] = [
        make_checkpoint("oslo"),
        make_checkpoint("bergen", step=800, lag_steps=400, lag_s=600.0, **behind),
        make_checkpoint("narvik", step=None, **behind),
        make_checkpoint("vadso", lag_checkpoints=0, lag_bytes=0),
    ]
    whole = "of gpt, saved 5 min ago, verified 4 min ago"
    assert list(words.explained(make_explanation(phases=[]), job, NOW))[1:] == [
        f"Checkpoints at oslo: step 1,200 {whole}; the loop saves there.",
        f"Checkpoints at bergen: step 800 {whole}; 400 steps, 10 min, 2 checkpoints and 3 GB "
        "behind.",
        "Checkpoints at narvik: none is whole; 2 checkpoints and 3 GB behind, with nothing to "
        "resume from.",
        f"Checkpoints at vadso: step 1,200 {whole}; not behind.",
    ]


@pytest.mark.parametrize("told", [[], [make_checkpoint("oslo", told_at=at(1000))]])
def test_a_checkpoint_of_which_only_the_loop_has_told_is_said_to_be_declared(told: Any) -> None:
    attempt = {"state": "running", "number": 2, "started_at": at(900), "checkpoint_at": at(300)}
    job = make_job(phases=[make_phase("train", state="running", attempts=[attempt])])
    job["checkpoints"] = told
    *_, said = words.explained(make_explanation(phases=[]), job, NOW)
    assert said == "Its last checkpoint, 5 min ago, is declared, not verified."


def test_the_queue_says_first_what_it_comes_to() -> None:
    head, _, header, first, last = words.queue(make_queue(make_queued()), NOW)
    assert head == "4 wait, 9 run; oldest 38 min: 3 FeedPowerHeadroom, 1 GpuShortage."
    assert header.split() == ["phase", "class", "GPUs", "waits", "starts", "in", "why"]
    assert first.split("  ")[:2] == ["1", "llama-ft-12/train"]
    assert "FeedPowerHeadroom: needs 41.2 kW" in first
    assert last == "\N{HORIZONTAL ELLIPSIS} and 3 more: --count 4"


def test_columns_stand_below_each_other() -> None:
    rows = [make_queued(1), make_queued(2, what="x/y", gpus=1024, estimate=None)]
    _, _, header, first, second = list(words.queue(make_queue(*rows, waiting=2), NOW))
    assert header.index("class") == first.index("high-") == second.index("high-")
    assert first.index(" 64 ") + 3 == second.index("1,024 ") + 5
    assert first.index("FeedPower") == second.index("FeedPower") == header.index("why")


def test_a_long_reason_is_cut_in_the_table() -> None:
    row = make_queued(sentence="x" * 300)
    line = list(words.queue(make_queue(row), NOW))[3]
    assert line.endswith("x\N{HORIZONTAL ELLIPSIS}")
    assert len(line) < 220


def test_a_queue_that_is_empty_old_or_unknown() -> None:
    assert list(words.queue(make_queue(waiting=0, counts=[]), NOW)) == [
        "Nothing waits; 9 phases run."
    ]
    (old,) = words.queue(make_queue(at=at(90)), NOW)
    assert old.endswith("As of 90 s ago.")
    (none,) = words.queue(make_queue(at=None), NOW)
    assert none == "No cycle has decided yet: is the worker running?"


def test_a_dry_run_says_where_each_phase_would_begin() -> None:
    warned = make_placement(warnings=["it spends more time on talking than on computing"])
    plain = make_placement(power_cap_w=None, slowdown=0.0, racks=["oslo/A01"], gpus=8, nodes=1)
    head, *lines = words.dry_run(
        make_dry_run(
            make_tried("prepare", placement=plain), make_tried(after=["prepare"], placement=warned)
        )
    )
    assert head == "In project vision, class high-density-training; nothing was submitted."
    assert lines == [
        "prepare would begin at once: 8 GPUs on 1 node in oslo/A01, 52.4 kW",
        "train would begin at once once prepare has succeeded: 64 GPUs on 8 nodes in "
        "oslo/A01, oslo/A02, 52.4 kW, capped at 550 W per GPU, about 4 % slower",
        "  note: it spends more time on talking than on computing",
    ]


def test_a_dry_run_says_why_a_phase_would_wait() -> None:
    waits = make_tried(
        starts=False, placement=None, reasons=[make_reason()], position=4,
        counterfactuals=[make_fix()],
    )  # fmt: skip
    _, why, fix = words.dry_run(make_dry_run(waits))
    assert why == (
        "train would wait at position 4: needs 41.2 kW on feed b2, which has 36.8 kW: "
        "short 4.4 kW (FeedPowerHeadroom)"
    )
    assert fix == "  starts now at 550 W per GPU (4 % slower)"


def test_how_a_job_stands() -> None:
    assert words.state(make_job(), NOW) == (
        "llama-ft-12 queued, submitted 38 min ago: train queued (FeedPowerHeadroom)"
    )
    over = make_job(
        state="succeeded", ended_at=at(0), phases=[make_phase(state="succeeded", reason="")]
    )
    assert words.state(over, NOW) == "llama-ft-12 succeeded after 38 min: train succeeded"


def test_what_was_taken() -> None:
    job = make_job(phases=[make_phase("a", gpus=8), make_phase("b", gpus=64)])
    assert words.submitted(job) == (
        "llama-ft-12 is queued: 2 phases, 64 GPUs at most. Follow it: headroom watch llama-ft-12"
    )


def test_what_runs_again_has_begun_when_its_last_attempt_did() -> None:
    tried = [
        {"number": 1, "started_at": at(660)}, {"number": 2, "started_at": at(180)},
    ]  # fmt: skip
    again = make_phase(state="running", started_at=at(660), attempts=tried)
    assert words._standing(again, NOW) == "is running, attempt 2, begun 3 min ago."
    tried[1]["started_at"] = None
    assert words._standing(again, NOW) == "is running, attempt 2."


ARRAY = {
    "indices": "0-99", "limit": 10, "gpus": 4, "elements": 100, "left": 80, "waiting": 2,
    "running": 8, "succeeded": 9, "failed": 1, "cancelled": 0,
}  # fmt: skip


def test_an_array_is_one_line_with_its_elements_in_numbers() -> None:
    assert words.array(ARRAY) == (
        "8 running, 2 waiting, 9 succeeded, 1 failed, 80 behind them of 100"
    )
    (_, line) = words.listed([make_job(array=ARRAY, phases=[])], NOW)
    assert "queued: 8 running, 2 waiting" in line
    assert words.submitted(make_job(array=ARRAY)).startswith(
        "llama-ft-12 is queued: 100 elements of 1 phase, 4 GPUs at most"
    )


def test_what_keeps_one_element_is_told_once() -> None:
    answer = make_explanation(make_explained("train.3", elements=82))
    lines = list(words.explained(answer, make_job(array=ARRAY, phases=[]), NOW))
    assert lines[0].startswith("llama-ft-12, an array: 8 running")
    assert lines[-1] == "  the same keeps 81 other elements of the array"
    assert sum("waits" in line for line in lines) == 1


def test_elements_share_a_line_of_the_queue() -> None:
    lines = list(words.queue(make_queue(make_queued(elements=3)), NOW))
    assert "llama-ft-12/train and 2 like it" in "\n".join(lines)
    assert lines[-1].startswith("… and 1 more")


def test_limits_are_said_beside_what_one_has() -> None:
    project = {
        "name": "vision",
        "gpus_held": 40,
        "share": {"gpu_quota": 64},
        "per_user": {
            "mine": {
                "limits": {
                    "gpus": 16, "running": None, "pending_jobs": 50, "pending_phases": 200,
                    "submissions_per_s": 2.0,
                },
                "use": {"gpus": 12, "running": 3, "pending_jobs": 1, "pending_phases": 1},
            }
        },
    }  # fmt: skip
    said = list(words.limits(project))
    assert said[0] == "In project vision, you have:"
    assert said[2].split() == ["GPUs", "at", "once", "12", "16"]
    assert said[3].endswith("no limit")
    assert said[-2] == "You may submit 2 jobs a second there."


def test_where_the_time_went_is_a_table_with_what_brings_it_back() -> None:
    causes = [
        {"cause": "productive", "gpu_s": 7200.0, "share": 0.8, "lever": ""},
        {"cause": "unknown", "gpu_s": 1800.0, "share": 0.2, "lever": "connect the loop"},
    ]
    answer = {
        "job": "llama", "gpu_s": 9000.0, "goodput": 0.8, "cannot_tell": ["data_wait"],
        "causes": causes, "program_goodput": None, "program_known": None, "program_verdict": "",
    }  # fmt: skip
    head, program, columns, *rows, last = words.goodput(answer)
    assert head == "llama held GPUs for 2.50 GPU-hours: at least 80.0 % goodput."
    assert program == "Program goodput is not known: state flops_per_step in specification or loop."
    assert columns.split()[:3] == ["CAUSE", "GPU-HOURS", "SHARE"]
    assert [row.split()[:3] for row in rows] == [
        ["productive", "2.00", "80.0"], ["unknown", "0.50", "20.0"],
    ]  # fmt: skip
    assert rows[1].endswith("connect the loop")
    assert last == "In unknown: data_wait."


def test_a_job_of_which_nothing_is_known_has_no_goodput() -> None:
    answer = {
        "job": "llama", "gpu_s": 0.0, "goodput": None, "cannot_tell": [], "causes": [],
        "program_goodput": None, "program_known": None, "program_verdict": "",
    }  # fmt: skip
    assert [*words.goodput(answer)] == ["llama held no GPU in this time."]
    head, *_ = words.goodput({**answer, "gpu_s": 3600.0})
    assert head.endswith("Its loop reported no steps, so its goodput is not known.")


def test_what_a_job_has_waited_for_is_told_with_what_that_cost_where_it_is_stated() -> None:
    waiting = [
        {"reason": "GpuShortage", "demand_gpu_s": 7200.0, "money": 3.0},
        {"reason": "", "demand_gpu_s": 1800.0, "money": None},
    ]
    answer = {"job": "llama", "gpu_s": 0.0, "currency": "EUR", "waiting": waiting}
    assert [*words.goodput(answer)][1:] == [
        "Waited for 2.00 GPU-hours, GpuShortage: 3.00 EUR.",
        "Waited for 0.50 GPU-hours, no reason told.",
    ]


def test_the_account_of_the_fleet_is_told_in_all_by_cause_and_by_group() -> None:
    head, program, below, *table = words.fleet_goodput(make_fleet_goodput())
    _, _, lost, _, columns, vision, nobody, waited, iterations = table
    assert program == "Program goodput: 25.0 % MFU of productive time, known for 50.0 % of it."
    assert below == "That is below the 30 to 50 % of well-optimized training. Fuse kernels."
    goodput = "scheduling 50.0 %, runtime at least 100.0 %, both 50.0 %"
    assert head == f"4.00 GPU-hours. Goodput: {goodput}."
    assert lost.split()[:3] == ["free", "2.00", "50.0"]
    assert lost.endswith("see the queue")
    assert columns.split() == ["PROJECT", "GPU-HOURS", "HELD", "GOODPUT"]
    assert vision.split() == ["vision", "2.00", "2.00", "100.0", "%"]
    assert nobody.split() == ["(nobody)", "2.00", "0.00"]
    assert waited == (
        "Waited for: 1.00 GPU-hours, 0.50 of it while as many GPUs were free (GpuShortage)."
    )
    assert iterations.endswith("model iteration index 0.90.")


def test_hours_without_an_account_are_said_first() -> None:
    at = datetime(2026, 11, 19, 14).astimezone()
    answer = make_fleet_goodput(missing_hours=3, first_missing=at.timestamp(), by="cause")
    first, *rest = words.fleet_goodput(answer)
    assert first == "Of 3 hours there is no account, the first at 2026-11-19 14:00."
    assert not any(line.startswith("CAUSE ") and "HELD" in line for line in rest)
    empty = [*words.fleet_goodput({**answer, "gpu_s": 0.0})]
    assert empty == [first, "There is no account of this time."]


def test_what_pays_first_stands_above_what_cost_most() -> None:
    lines = [*words.losses(make_losses())]
    first, back, step, _, columns, heat, waits, rest, untold = lines
    assert first == "What pays first: look at its cooling."
    assert back == "It brings back 840.00 GPU-hours, 588.00 kWh a week (throttled_hw_thermal)."
    assert step == "  beyond its usual = 6 % - 1 % = 5 points"
    assert columns.startswith("LOST TO")
    assert heat.split()[:6] == ["throttled_hw_thermal", "144.00", "6.0", "%", "1.0", "%"]
    assert "waiting (QuotaExceeded)" in waits
    assert "12.50    not known  see the queue" in waits
    assert rest == "Not ranked: busy, 3.00 GPU-hours. connect the training loop."
    assert untold == "Cannot tell which gangs were at several sites."


def test_where_no_gain_or_no_account_is_known_that_is_said() -> None:
    head, *_ = words.losses(make_losses(first=None))
    assert head == "What pays first is not known: no gain is known of any loss."
    assert [*words.losses(make_losses(hours=0))] == ["There is no account of this time."]


def test_budgets_say_what_is_used_at_least_and_what_is_forecast() -> None:
    stands = {
        "share": 0.71, "forecast_share": None, "end": "2026-12-01T00:00:00Z", "is_least": True,
        "open_hours": 2,
    }  # fmt: skip
    budget = {
        "id": 3, "project": "vision", "amount": 1200.0, "unit": "kWh", "standing": stands
    }  # fmt: skip
    _, line = words.budgets([budget, {**budget, "standing": None}])
    assert line.split("  ")[0] == "3"
    assert "at least 71.0 %" in line
    assert line.rstrip().endswith("2026-12-01 00:00  2 hours")
    _, line = words.budgets([{**budget, "standing": {**stands, "unread": 0.125}}])
    assert line.endswith("2 hours     12.5 %")
    assert [*words.budgets([])] == ["No budget is in force."]


def test_what_the_time_of_the_fleet_comes_to_says_how_much_of_it_is_priced() -> None:
    _, money, *_ = words.fleet_goodput(make_fleet_goodput(money=12.5, price_known=0.5))
    assert money == "That time comes to 12.50 EUR, of which the price is known for 50.0 %."
