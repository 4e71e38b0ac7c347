"""Runs of playbooks as a reader may see them: one about a job of another project is not there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from accounts.visibility import Visibility
from policies.playbooks.models import Directive, PlaybookRun

__all__ = ["RUN", "runs"]

#: Texts and JSON of a run that may name jobs.
RUN = ("why", "values")
_STEP = ("note",)
_DIRECTIVE = ("arguments", "note", "ledger")


def runs(found: Iterable[PlaybookRun], visibility: Visibility) -> list[PlaybookRun]:
    """Return runs that ``seen_by`` has let pass, with steps and directives. Not to be saved.

    Four queries at most, where ``found`` comes with its steps.
    """
    rows = visibility.veiled(found, *RUN)
    if visibility.sees_all:
        return rows
    steps = visibility.veiled((step for row in rows for step in row.steps.all()), *_STEP)
    told = list(Directive.objects.filter(run__in=[row.pk for row in rows]))
    given = visibility.veiled(
        [each for each in told if not visibility.hides(each.scope_kind, each.scope_name)],
        *_DIRECTIVE,
    )
    for row in rows:
        cache: dict[str, list[Any]] = {
            "steps": [step for step in steps if step.run_id == row.pk],
            "directives": [each for each in given if each.run_id == row.pk],
        }
        row._prefetched_objects_cache = cache  # type: ignore[attr-defined]
    return rows
