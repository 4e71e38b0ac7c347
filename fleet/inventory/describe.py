"""A plan as text for people, and as data for programs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from fleet.inventory.kinds import KINDS
from fleet.inventory.plan import KindPlan, Plan

#: The most entries of one kind and sort that :func:`as_dict` lists. Counts are always whole.
LISTED = 1000


def summary(plan: Plan) -> str:
    """Return the numbers in one line: ``3 to create, 1 to change, 0 to remove``."""
    counts = plan.counts.values()
    return ", ".join(
        f"{sum(each[done] for each in counts):,} to {verb}"
        for done, verb in (("created", "create"), ("changed", "change"), ("removed", "remove"))
    )


def lines(plan: Plan, limit: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield the diff as pairs of a sign (``+``, ``~``, ``-``, or blank) and a text.

    At most ``limit`` rows of a kind are listed for each sign.
    """
    for name, kind in plan.kinds.items():
        label = KINDS[name].label
        for sign, rows in _by_sign(kind):
            for text in islice(rows, limit):
                yield sign, f"{label} {text}"
            rest = sum(1 for _ in rows)
            if rest:
                yield sign, f"… and {rest:,} more of kind {label}"


def _by_sign(kind: KindPlan) -> Iterator[tuple[str, Iterator[str]]]:
    yield "+", iter(kind.created)
    yield "~", (f"{key}: {_differences(each.fields)}" for key, each in kind.changed.items())
    yield "-", iter(kind.removed)


def _differences(fields: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} {_said(old)} → {_said(new)}" for name, (old, new) in fields.items())


def _said(value: Any) -> str:
    if value is None or value == "":
        return "none"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def as_dict(plan: Plan) -> dict[str, Any]:
    """Return counts by kind, of each kind the first keys and changes, and the first warnings."""
    return {
        "sites": list(plan.sites),
        "counts": plan.counts,
        "kinds": {name: _kind_dict(kind) for name, kind in plan.kinds.items() if kind},
        "warnings": list(plan.warnings[:LISTED]),
    }


def _kind_dict(kind: KindPlan) -> dict[str, Any]:
    return {
        "created": list(islice(kind.created, LISTED)),
        "changed": {
            key: {name: list(pair) for name, pair in change.fields.items()}
            for key, change in islice(kind.changed.items(), LISTED)
        },
        "removed": list(islice(kind.removed, LISTED)),
        "truncated": max(kind.counts.values()) > LISTED,
    }
