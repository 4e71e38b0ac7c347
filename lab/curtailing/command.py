"""``python -m lab curtail``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from lab.approaches.approaches import NAMES
from lab.commands.shared import in_one_line, progress
from lab.curtailing.events import HOURS, WARM_S
from lab.curtailing.run import Curtailed, LongRun, Met, play_long, play_random
from lab.traces import TraceError

__all__ = ["curtail"]


@click.command("curtail")
@click.option(
    "--trace",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="Jobs of the Philly trace: jobs.csv.gz, or its folder.",
)
@click.option("--approach", type=click.Choice(NAMES), default="all-together", show_default=True)
@click.option("--seed", "seeds", type=int, multiple=True, default=(1,), show_default=True)
@click.option(
    "--long/--random",
    "is_long",
    default=False,
    help="A quarter less for three hours, in place of 200 random events in ten.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File for the JSON.")
def curtail(
    trace: Path, approach: str, seeds: tuple[int, ...], is_long: bool, out: Path | None
) -> None:
    """Ask a site to draw less, as a grid does, and print what was kept of it as a table.

    Which jobs, fleet and events: the rule at the top of lab/curtailing/events.py.
    """
    found: list[Curtailed | LongRun] = []
    hours = 2 * (WARM_S + 300.0 + 3 * 3600.0) / 3600.0 if is_long else WARM_S / 3600.0 + HOURS
    for seed in seeds:
        with in_one_line(), progress(hours, sys.stderr) as show:
            try:
                found.append(_play(trace, approach, seed, is_long, _shown(show, seed)))
            except TraceError as error:
                raise click.ClickException(str(error)) from error
    click.echo(_table(found))
    if out is not None:
        out.write_text(json.dumps([each.as_data() for each in found], indent=1) + "\n")
        click.echo(out)


def _play(
    trace: Path, approach: str, seed: int, is_long: bool, told: Callable[[float], None]
) -> Curtailed | LongRun:
    play: Callable[..., Curtailed | LongRun] = play_long if is_long else play_random
    return play(trace, approach, seed=seed, progress=told)


def _shown(show: Callable[[float, str], None], seed: int) -> Callable[[float], None]:
    """Return what is told the twin's clock: it begins again with each part of a run."""
    state = {"at": 0.0, "before": 0.0}

    def told(now_s: float) -> None:
        if now_s < state["at"]:
            state["before"] += state["at"]
        state["at"] = now_s
        show((state["before"] + now_s) / 3600.0, f"seed {seed}")

    return told


def _table(found: list[Curtailed | LongRun]) -> str:
    """Return what came of all seeds as a table in Markdown."""
    rows: list[list[str]] = []
    for each in found:
        if isinstance(each, Curtailed):
            heading = [
                "approach", "seed", "events", "within what was agreed", "met in time", "held",
                "seconds held", "worst event", "highest class touched",
                "said to be in reach", "held", "touched", "sure", "kept", "kept of those sure",
                "work lost as said", "s over a budget",
            ]  # fmt: skip
            rows.append(
                [
                    each.approach, str(each.seed), str(len(each.met)), str(each.agreed),
                    str(each.in_time), str(each.held), f"{each.held_share:.2%}",
                    f"{each.worst_held_share:.1%}",
                    f"{len(each.touched)} of {each.highest}", str(len(each.in_reach)),
                    str(each.held_in_reach), str(len(each.touched_in_reach)),
                    f"{each.sure_of_all:.0%}", f"{each.kept / len(each.met):.0%}",
                    f"{each.kept_of_sure} of {each.said_sure}",
                    f"{each.as_said} of {each.answered}",
                    f"{each.record.over_budget_s['any']:.0f}",
                ]
            )  # fmt: skip
        else:
            heading = [
                "approach", "seed", "verdict", "seconds held", "met after, s", "work, GPU h",
                "without, GPU h", "work left", "most that could be", "if all gave way", "busy",
                "highest class touched", "sure", "work lost, GPU h", "said",
            ]  # fmt: skip
            kept, after_s = each.met.kept, each.met.kept.met_after_s
            rows.append(
                [
                    each.approach, str(each.seed), kept.verdict, f"{kept.held_share:.2%}",
                    "never" if after_s is None else f"{after_s:.0f}", f"{each.work_gpu_h:.1f}",
                    f"{each.work_without_gpu_h:.1f}", f"{each.work_left:.1%}",
                    f"{each.most_left:.1%}", f"{each.most_left_at_will:.1%}",
                    f"{each.busy_share:.0%}", f"{len(each.met.touched)} of {each.highest}",
                    *_said(each.met),
                ]
            )  # fmt: skip
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _said(met: Met) -> tuple[str, str, str]:
    """Return how sure an event was, the work that was lost, and the band that was said."""
    said, lost = met.said, f"{met.lost_gpu_h:.1f}"
    if said is None:
        return "not said", lost, "not said"
    return f"{said.sure:.0%}", lost, f"{said.lost_low_gpu_h:.1f} to {said.lost_high_gpu_h:.1f}"
