"""Ranges that jobs are told for their starts, held against when they start.

The cycle of admission plays windows of published traces (:mod:`bench.backfill_windows`) on a fleet
where nothing but GPUs is short. What a job is told first, in the cycle in which it begins to wait,
counts. The rule was written down and committed before the first run:

- *Coverage* is the share of jobs that start from ``p10_s`` to ``p90_s``: 0.75 to 0.85 in each
  window, and at least 0.65 in each class of sizes of which a window has 20 jobs that waited.
  Classes are 1 GPU, 2 to 7, 8 to 15, and 16 and more.
- *Width* is the median of ``p90_s / p10_s``: at most 5. Nobody starts before the next cycle, so
  both are taken to be at least the time between cycles.
- *Loss* is the pinball loss at 10, 50 and 90 %, in seconds, over that of the best of four baselines
  on the same jobs: at most 0.7. Baselines are "now"; the quantiles of the last 256 waits that were
  over when a job was told, of all jobs and of those of its class; and the quantiles of all waits of
  the window, which nobody could know. The ratio beside the other three is told, too.

A window in which fewer than 50 jobs wait says nothing, and is counted apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench import django_in, report
from bench.backfill_windows import Window, others, windows
from tests.data_sets import data_folder

NOTES = {
    "stated_windows": "windows of Philly, openb, Helios and like Acme's, chosen by a rule",
    "stated_covered": "of them those with 0.75 to 0.85 of starts from p10 to p90; bar: all",
    "stated_classes_covered": "classes of sizes with 0.65 and more, of all in all windows",
    "stated_narrow": "windows with a median p90/p10 of at most 5; bar: all",
    "stated_better": "windows with at most 0.7 of the best baseline's pinball loss; bar: all",
    "blind_windows": "the same where walltimes tell nothing",
}
_RUNS = ("stated", "blind")
_LEAST_TOLD = 50
_COVERAGE, _LEAST_OF_CLASS, _WIDEST, _MOST_LOSS = (0.75, 0.85), 0.65, 5.0, 0.7


def run() -> None:
    rows = [row for name in _RUNS for row in judge(windows(data_folder()), name)]
    figures = {**_totals(rows), "by_window": rows}
    report.show("estimates", _totals(rows), NOTES)
    print(f"kept in {report.keep('estimates', figures)}")


def judge(some: Iterable[Window], run: str, *, seed: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the figures of windows, and show them as they come.

    ``seed``: their jobs run as drawn from what is known of those before them, and not as they did.
    """
    django_in.set_up_alone()
    # Imports Django's models, which cannot be before it is set up.
    from bench.estimates_told import judged

    print(_line(_HEADS))
    for window in some:
        row = {"run": run, **judged(window, blind=run == "blind", seed=seed)}
        print(_line(_cells(row)), flush=True)
        yield row


def _totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(each["run"] for each in rows):
        all_of_them = [each for each in rows if each["run"] == name]
        some = [each for each in all_of_them if each["told"] >= _LEAST_TOLD]
        found[f"{name}_too_few"] = len(all_of_them) - len(some)
        if not some:
            continue
        classes = [one for each in some for one in each["classes"].values() if one["counts"]]
        low, high = _COVERAGE
        found |= {
            f"{name}_windows": len(some),
            f"{name}_covered": sum(low <= each["coverage"] <= high for each in some),
            f"{name}_classes": len(classes),
            f"{name}_classes_covered": sum(one["coverage"] >= _LEAST_OF_CLASS for one in classes),
            f"{name}_narrow": sum(each["width"] <= _WIDEST for each in some),
            f"{name}_better": sum(each["loss_ratio"] <= _MOST_LOSS for each in some),
            f"{name}_worst_loss_ratio": max(each["loss_ratio"] for each in some),
            f"{name}_worst_knowable_loss_ratio": max(each["knowable_loss_ratio"] for each in some),
            f"{name}_widest": max(each["width"] for each in some),
        }
    return found


_HEADS = ("window", "run", "told", "coverage", "by class", "width", "loss", "best of", "ratio")
_WIDTHS = (18, 8, 7, 10, 26, 8, 10, 19, 8)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    classes = [f"{each['coverage']:.2f}" if each["counts"] else "-"
               for each in row["classes"].values()]  # fmt: skip
    best = min(row["baselines"], key=lambda name: row["baselines"][name])
    return (
        row["window"], row["run"], f"{row['told']:,}", f"{row['coverage']:.3f}",
        " ".join(classes), f"{row['width']:.2f}", f"{row['loss_s']:,.0f} s",
        f"{best} {row['baselines'][best]:,.0f}", f"{row['loss_ratio']:.2f}",
    )  # fmt: skip


def _line(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def main() -> None:
    """``python -m bench.estimates``: the windows that parameters are chosen on, by name.

    With ``--as-drawn`` those that are judged, with jobs that run as drawn from what is known of
    those before them: what is left to be wrong is the luck of a window, and who comes later.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="of windows; none: all")
    parser.add_argument("--blind", action="store_true", help="walltimes tell nothing")
    parser.add_argument("--as-drawn", type=int, metavar="SEED", help="jobs run as drawn")
    given = parser.parse_args()
    seed = given.as_drawn
    chosen = (others if seed is None else windows)(data_folder())
    some = (each for each in chosen if not given.names or each.name in given.names)
    rows = judge(some, "blind" if given.blind else "stated", seed=seed)
    report.show("estimates", _totals(list(rows)), {})


if __name__ == "__main__":
    main()
