"""What machines found of the declared inputs of phases at sites: docs/reference/directives.md."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from admission.core.response.inputs import InputsSeen, KnownInputs, differ_at
from admission.jobs.models import Phase

__all__ = ["COUNTS_FOR", "are_declared", "of_phases", "unfit"]

#: What was found longer ago says nothing any more of what is there.
COUNTS_FOR = timedelta(days=1)
#: So many of the attempts that ended last are looked at.
_MOST = 2_000

# A command that has saved a checkpoint or has succeeded had started, and machines start none on
# inputs that differ: they end it with 126 and the input's name. At which of several sites they did
# is not known. What another job of the project declared alike counts, too: its inputs are the same.
# Artifacts of earlier phases are not declared, and say nothing of a site.
_SEEN = """
WITH ended AS MATERIALIZED (
    SELECT * FROM admission_jobs_attempt WHERE ended_at > %(since)s
    ORDER BY ended_at DESC LIMIT %(most)s
), seen AS MATERIALIZED (
    SELECT phase_id, placement, ended_at AS at, regexp_replace(why, '^[^ ]*: ', '') AS why
    FROM ended WHERE exit_code = 126 AND why ~ '^[^ ]*: input (?!artifact/)'
    UNION ALL
    SELECT phase_id, placement, started_at, ''
    FROM ended WHERE outcome = 'succeeded' OR checkpoint_at > started_at
    UNION ALL
    SELECT phase_id, placement, started_at, ''
    FROM admission_jobs_attempt
    WHERE ended_at IS NULL AND checkpoint_at > greatest(started_at, %(since)s)
)
SELECT DISTINCT ON (asked.id, site) asked.id, seen.placement->'sites'->>0 AS site, seen.at, seen.why
FROM seen
JOIN admission_jobs_phase AS theirs ON theirs.id = seen.phase_id
JOIN admission_jobs_job AS other ON other.id = theirs.job_id
JOIN admission_jobs_job AS mine ON mine.project_id = other.project_id
JOIN admission_jobs_phase AS asked ON asked.job_id = mine.id AND asked.id = ANY(%(phases)s)
WHERE jsonb_array_length(seen.placement->'sites') = 1
    AND other.spec->'phases'->theirs.index->'artifacts'
        = mine.spec->'phases'->asked.index->'artifacts'
ORDER BY asked.id, site, seen.at DESC
"""


def are_declared(phase: Phase) -> bool:
    """Say whether a phase declares inputs that machines can verify, its job read."""
    given = _artifacts(phase)
    return bool(given.get("code_path") or given.get("data_paths"))


def of_phases(phases: Collection[Phase], now: datetime) -> dict[int, KnownInputs]:
    """Return what is known of the inputs of phases, by id, their jobs read.

    One query; none where no phase declares inputs that can be verified.
    """
    asked = [phase.pk for phase in phases if are_declared(phase)]
    if not asked:
        return {}
    found: dict[int, dict[str, InputsSeen]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_SEEN, {"phases": asked, "since": now - COUNTS_FOR, "most": _MOST})
        for phase, site, at, why in cursor.fetchall():
            found.setdefault(phase, {})[site] = InputsSeen(at.timestamp(), why)
    return dict(found)


def unfit(phases: Iterable[Phase], now: datetime) -> frozenset[str]:
    """Return the sites at which inputs of some of the phases differ. One query, as of_phases."""
    seen = of_phases(list(phases), now)
    return frozenset().union(*map(differ_at, seen.values()))


def _artifacts(phase: Phase) -> dict[str, Any]:
    return phase.job.spec["phases"][phase.index].get("artifacts") or {}
