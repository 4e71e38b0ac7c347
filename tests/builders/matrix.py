"""Results of a matrix, as a run of the twin or of a command leaves them."""

from __future__ import annotations

import math

from lab.matrix.result import (
    Better,
    Cell,
    Check,
    MatrixResult,
    Measure,
    Series,
    Span,
    SubjectKind,
    Verdict,
    make_result,
    verdict_of_checks,
    why_of_checks,
)

END_S, STEP_S = 3600.0, 20.0
FAULT = Span(
    name="supply_temperature", from_s=900.0, to_s=2100.0, said="8 °C warmer on zone mesa/zone-a"
)
SECOND = Span(name="feed_loss", from_s=1500.0, to_s=1800.0, said="off on domain mesa/feed-b")


def make_series(*, seed: int, over: float) -> list[Series]:
    """Return series of a run. ``over`` is by how much the power passes its budget, as a share."""
    times = [i * STEP_S for i in range(int(END_S / STEP_S) + 1)]
    budget_w = 86_000.0

    def power(t_s: float) -> float:
        acts = FAULT.from_s <= t_s < FAULT.to_s
        base = 0.82 + 0.04 * math.sin(t_s / 140 + seed) + 0.015 * math.sin(t_s / 31)
        return budget_w * (base + (0.13 + over) * acts * math.exp(-(t_s - 900) / 900))

    def heat(t_s: float) -> float:
        acts = FAULT.from_s <= t_s < FAULT.to_s
        return 68 + 4 * math.sin(t_s / 400 + seed) + (14 + 90 * over) * acts

    return [
        Series(
            name="site_w",
            unit="W",
            t_s=times,
            values=[power(t) for t in times],
            budget=budget_w,
            budget_said="budget of the site",
        ),
        Series(
            name="gpu_temp_c",
            unit="°C",
            t_s=times,
            values=[None if 2400 < t < 2500 else heat(t) for t in times],
            budget=87.0,
            budget_said="slowdown at",
        ),
        Series(
            name="running_gpus",
            unit="",
            plot="gpus",
            t_s=times,
            values=[240.0 - 60.0 * (900 <= t < 2100) for t in times],
        ),
        Series(
            name="throttled_gpus",
            unit="",
            plot="gpus",
            t_s=times,
            values=[float(round(300 * over)) * (900 <= t < 2100) for t in times],
        ),
    ]


def make_cell(
    scenario: str = "severe-thermal",
    *,
    title: str = "Severe thermal restriction",
    seed: int = 1,
    over: float = 0.0,
    verdict: Verdict | None = None,
    **more: object,
) -> Cell:
    """Return a cell. With ``over`` it failed by so much; with ``verdict`` nothing was judged."""
    checks = [
        Check(
            text="site_w is never over its budget",
            verdict=Verdict.FAILED if over else Verdict.PASSED,
            said=f"{over * 86:.1f} kW over at 15:20, for {600 * over:.0f} s in all"
            if over
            else "91.3 % of it at most, at 15:20",
        ),
        Check(
            text="gpu_temp_c is never above 87 °C for 60 s",
            verdict=Verdict.FAILED if over > 0.04 else Verdict.PASSED,
            said=f"{86 + 90 * over:.1f} °C at most",
        ),
        Check(
            text="running_gpus recovers to 90 % of before within 10 min",
            verdict=Verdict.PASSED,
            said="after 3 min 20 s",
        ),
    ]
    if verdict in (Verdict.NOT_RUN, Verdict.ERROR):
        why = {
            Verdict.NOT_RUN: "this machine has no network namespaces: tc netem cannot be used",
            Verdict.ERROR: "the run broke: MemoryError",
        }[verdict]
        return Cell(scenario=scenario, title=title, seed=seed, verdict=verdict, why=why)
    values: dict[str, object] = {
        "scenario": scenario,
        "title": title,
        "about": "Supply air is 8 °C too warm for 20 minutes. GPUs are to be capped before they "
        "throttle by themselves, and what was held is to go on once the air is cool.",
        "seed": seed,
        "verdict": verdict_of_checks(checks),
        "why": why_of_checks(checks),
        "checks": checks,
        "measures": [
            Measure(
                name="throughput",
                value=0.93 - over + 0.004 * seed,
                unit="share",
                said="of what the same seed does under normal conditions",
                better=Better.HIGHER,
            ),
            Measure(
                name="time_over_budget", value=600 * over, unit="s", better=Better.LOWER,
                said="summed over racks, feeds and sites, by true power",
            ),
            Measure(name="work_lost", value=3600 * over * seed, unit="GPU s", better=Better.LOWER),
            Measure(name="energy", value=2.9e8 + 1e6 * seed, unit="J", better=Better.LOWER),
            Measure(name="retries", value=float(seed % 3), better=Better.LOWER),
            Measure(name="sync_delay", value=None, unit="s", said="no job spans two racks"),
        ],
        "series": make_series(seed=seed, over=over),
        "spans": [FAULT, SECOND],
        "log": "t=900 rule zone-heat fires on mesa/zone-a\nt=910 restriction power_cap_w 550 W",
        "digest": "5f0c9d1e" * 8,
        "simulated_s": END_S,
        "wall_s": 1.8,
        "again": f"python -m lab matrix run --scenario {scenario} --seed {seed}",
    }  # fmt: skip
    return Cell(**(values | more))  # type: ignore[arg-type]


def make_matrix(*, over: float = 0.06, subject: str = "builtin") -> MatrixResult:
    """Return a matrix of six scenarios and three seeds; with ``over`` two of its cells failed."""
    names = {
        "normal": "Normal operating conditions",
        "mild-power": "Mild power restriction",
        "severe-thermal": "Severe thermal restriction",
        "cross-site-latency": "High-latency path between sites",
        "artifact-loss": "Packet loss on artifact storage",
        "slow-clocks": "Throttled clock mode",
    }
    cells = []
    for name, title in names.items():
        for seed in (1, 2, 3):
            here = over if name == "severe-thermal" and seed != 2 else 0.0
            is_out = over and name == "artifact-loss"
            verdict = Verdict.NOT_RUN if is_out and seed != 1 else None
            cells.append(make_cell(name, title=title, seed=seed, over=here, verdict=verdict))
    return make_result(
        subject=subject,
        kind=SubjectKind.POLICY,
        at="2026-11-20T20:50:00Z",
        cells=cells,
        machine={"host": "ci-runner-4", "cores": "2"},
        versions={"headroom": "0.1.0", "policy": "v14"},
    )
