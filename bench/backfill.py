"""Waits where nothing but GPUs is short, beside FCFS with EASY backfill on the same jobs.

The cycle of admission decides on a fleet in memory whose budgets are no limit, on windows of
published traces (:mod:`bench.backfill_windows`). A job that came in the window counts, whenever it
starts. Bounded slowdown is (wait + run) / max(run, 10 s), at least 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import django_in, report
from bench.backfill_windows import windows
from tests.data_sets import data_folder

NOTES = {
    "windows": "windows of Philly, openb and Helios, chosen by a rule",
    "no_worse": "of them those whose mean wait and slowdown are no worse; bar: all",
    "worst_wait_ratio": "of all windows: mean wait over that of FCFS+EASY",
    "worst_slowdown_ratio": "of all windows: mean bounded slowdown over that of FCFS+EASY",
    "blind_no_worse": "the same where walltimes tell nothing",
}


def run() -> None:
    django_in.set_up_alone()
    # Imports Django's models, which cannot be before it is set up.
    from bench.backfill_waits import compare

    print(_line(_HEADS))
    rows = []
    for window in windows(data_folder()):
        for blind in (False, True):
            row = {"walltimes": "blind" if blind else "stated", **compare(window, blind=blind)}
            print(_line(_cells(row)), flush=True)
            rows.append(row)
    figures = {**_summary(rows), "by_window": rows}
    report.show("backfill", _summary(rows), NOTES)
    print(f"kept in {report.keep('backfill', figures)}")


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    stated = [each for each in rows if each["walltimes"] == "stated"]
    blind = [each for each in rows if each["walltimes"] == "blind"]
    found: dict[str, Any] = {"windows": len(stated)}
    for name, some in (("", stated), ("blind_", blind)):
        found[f"{name}no_worse"] = sum(map(_is_no_worse, some))
        for what in ("wait", "slowdown"):
            found[f"{name}worst_{what}_ratio"] = max(_ratio(each, what) for each in some)
    return found


def _is_no_worse(row: dict[str, Any]) -> bool:
    return _ratio(row, "wait") <= 1.0 and _ratio(row, "slowdown") <= 1.0


def _ratio(row: dict[str, Any], what: str) -> float:
    ours, theirs = row[_KEYS[what]], row[f"easy_{_KEYS[what]}"]
    return float(ours / theirs) if theirs else 1.0 if not ours else float("inf")


_KEYS = {"wait": "wait_s", "slowdown": "slowdown"}


_HEADS = ("window", "walltimes", "GPUs", "jobs", "wait", "EASY", "slowdown", "EASY")
_WIDTHS = (18, 11, 7, 7, 12, 12, 11, 11)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["window"], row["walltimes"], f"{row['gpus']:,}", f"{row['jobs']:,}",
        f"{row['wait_s']:,.0f} s", f"{row['easy_wait_s']:,.0f} s",
        f"{row['slowdown']:,.2f}", f"{row['easy_slowdown']:,.2f}",
    )  # fmt: skip


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
