"""Figures as a table for people and, as the last line, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine

#: Results of whole runs, which the documents quote.
RESULTS = Path(__file__).with_name("results")


def show(name: str, figures: dict[str, Any], notes: dict[str, str] | None = None) -> None:
    """Print ``figures`` (a key with its unit in its name: value), each with its note if it has one.

    Every value is measured in this run.
    """
    notes = notes or {}
    width = max(map(len, figures), default=0)
    print(f"\n{name}")
    for key, value in figures.items():
        print(f"  {key:<{width}}  {_number(value):>14}  {notes.get(key, '')}".rstrip())
    described = machine.describe()
    print(f"  on {described['cpu']}, {described['cores']} cores, {described['memory_gib']} GiB\n")
    print(json.dumps(_document(name, figures)))
    sys.stdout.flush()


def keep(name: str, figures: dict[str, Any]) -> Path:
    """Write ``figures`` where results are committed, with the machine and the day; return where."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    rounded = {key: _rounded(value) for key, value in figures.items()}
    document = {**_document(name, rounded), "measured": f"{datetime.now(UTC):%Y-%m-%d}"}
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def _document(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {"bench": name, **figures, "machine": machine.describe()}


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def percentile(values: list[float], share: float) -> float:
    """Return the value that ``share`` (0 to 1) of ``values`` are at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
