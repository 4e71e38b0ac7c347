"""Waits where nothing but GPUs is short, beside FCFS with EASY backfill on the same jobs.

The cycle of admission decides on a fleet in memory whose budgets are no limit, on windows of
published traces (:mod:`bench.backfill_windows`). Where projects take turns it stands beside EASY in
the order in which they do, too: what turns cost is not what backfill does. A job that came in the
window counts, whenever it starts. Bounded slowdown is (wait + run) / max(run, 10 s), at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import django_in, report
from bench.backfill_windows import windows
from tests.data_sets import data_folder

NOTES = {
    "stated_windows": "windows of Philly, openb and Helios, chosen by a rule; all one project",
    "stated_no_worse": "of them those whose mean wait and slowdown are no worse; bar: all",
    "stated_worst_wait_ratio": "of all windows: mean wait over that of FCFS+EASY",
    "stated_worst_slowdown_ratio": "of all windows: mean bounded slowdown over that of FCFS+EASY",
    "blind_windows": "the same where walltimes tell nothing",
    "shares_windows": "those of several projects, which take turns, beside FCFS+EASY",
    "turns_windows": "the same beside EASY in the order that shares give",
}
_RUNS: dict[str, dict[str, bool]] = {
    "stated": {},
    "blind": {"blind": True},
    "shares": {"shares": True},
}


def run() -> None:
    django_in.set_up_alone()
    # Imports Django's models, which cannot be before it is set up.
    from bench.backfill_waits import compare

    print(_line(_HEADS))
    rows = []
    for window in windows(data_folder()):
        for name, given in _RUNS.items():
            if name != "shares" or len(set(window.jobs.project)) > 1:
                row = {"run": name, **compare(window, **given)}
                print(_line(_cells(row)), flush=True)
                rows.append(row)
    figures = {**_summary(rows), "by_window": rows}
    report.show("backfill", _summary(rows), NOTES)
    print(f"kept in {report.keep('backfill', figures)}")


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _RUNS:
        some = [each for each in rows if each["run"] == name]
        found |= _beside(name, "easy", some)
        if name == "shares":
            found |= _beside("turns", "turns", some)
    return found


def _beside(name: str, other: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how ours compares with ``other`` over windows."""
    ratios = {what: [_ratio(row, other, what) for row in rows] for what in _KEYS}
    no_worse = [all(each <= 1.0 for each in row) for row in zip(*ratios.values(), strict=True)]
    return {
        f"{name}_windows": len(rows),
        f"{name}_no_worse": sum(no_worse),
        **{f"{name}_worst_{what}_ratio": max(found) for what, found in ratios.items()},
    }


def _ratio(row: dict[str, Any], other: str, what: str) -> float:
    ours, theirs = row[_KEYS[what]], row[f"{other}_{_KEYS[what]}"]
    return float(ours / theirs) if theirs else 1.0 if not ours else float("inf")


_KEYS = {"wait": "wait_s", "slowdown": "slowdown"}


_HEADS = ("window", "run", "GPUs", "jobs", "wait", "EASY", "slowdown", "EASY")
_WIDTHS = (18, 11, 7, 7, 12, 12, 11, 11)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["window"], row["run"], f"{row['gpus']:,}", f"{row['jobs']:,}",
        f"{row['wait_s']:,.0f} s", f"{row['easy_wait_s']:,.0f} s",
        f"{row['slowdown']:,.2f}", f"{row['easy_slowdown']:,.2f}",
    )  # fmt: skip


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
