"""Curtailments as a reader may see them."""

from __future__ import annotations

from typing import Any

from accounts.visibility import Visibility

__all__ = ["seen"]


def seen(estimate: dict[str, Any], visibility: Visibility) -> dict[str, Any]:
    """Return an estimate with the jobs and projects that a reader may see; the others as sums."""
    if visibility.sees_all:
        return estimate
    measures = estimate.get("measures", [])
    visibility.seen([each["key"].partition("/")[0] for each in measures])
    shown = [
        each for each in measures if not visibility.hides("job", each["key"].partition("/")[0])
    ]
    projects = {each["project"] for each in shown}
    by_project = {
        name: lost for name, lost in estimate["lost_by_project"].items() if name in projects
    }
    hidden = len(measures) - len(shown)
    return {
        **estimate, "measures": shown, "lost_by_project": by_project, "hidden_measures": hidden
    }  # fmt: skip
