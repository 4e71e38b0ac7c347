"""Failures as a reader may see them: jobs of others have no name, and are not quoted."""

from __future__ import annotations

import dataclasses
from typing import Any

from accounts.visibility import Visibility
from admission.core.failures import Cause, Failure, Kind, lemons_of
from admission.failures.grouping import By, Group, groups_of, whole_fleet
from admission.failures.reading import Observed

__all__ = ["MOST_FAILURES", "MOST_GROUPS", "PRECEDENCE", "evidence_of", "told"]

#: So many groups, and so many of the newest failures, are told one by one.
MOST_GROUPS, MOST_FAILURES = 200, 100
#: Of a failure so many nodes and signs.
_MOST_NODES, _MOST_SIGNS = 8, 10
PRECEDENCE = tuple(kind.value for kind in Kind)


def told(found: Observed, by: By, visibility: Visibility) -> dict[str, Any]:
    """Return failures and their rates as JSON. Two queries where the reader does not see all."""
    groups = groups_of(found, by)
    newest = found.failures[: -MOST_FAILURES - 1 : -1]
    return {
        "start": found.span.start,
        "end": found.span.end,
        "by": by.value,
        "fleet": _group(whole_fleet(found)),
        "groups": [_group(each) for each in groups[:MOST_GROUPS]],
        "groups_left_out": max(len(groups) - MOST_GROUPS, 0),
        "lemons": _lemons(found),
        "precedence": PRECEDENCE,
        "unobserved": len(found.failures) - len(found.rated),
        "failures": _failures(newest, found, visibility),
        "failures_left_out": len(found.failures) - len(newest),
    }


def evidence_of(failure: Failure, visibility: Visibility) -> list[str]:
    """Return what tells of a failure, in words, what decided first. Two queries at most."""
    visibility.read(sign.text for sign in failure.signs)
    return [_text(each.text, each.job, visibility) for each in failure.signs[:_MOST_SIGNS]]


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "device": group.device,
        "causes": {cause.value: group.causes.get(cause.value, 0) for cause in Cause},
        **dataclasses.asdict(group.observed),
    }


def _lemons(found: Observed) -> dict[str, Any]:
    lemons = lemons_of(found.rated, found.exposure_s)
    names = [found.fleet.nodes.names[row] for row in lemons.nodes]
    return {"nodes": names, "failures": lemons.failures, "share": lemons.share}


def _failures(
    newest: list[Failure], found: Observed, visibility: Visibility
) -> list[dict[str, Any]]:
    # Look-ups for all at once.
    visibility.seen([job for each in newest for job in each.jobs])
    visibility.read(sign.text for each in newest for sign in each.signs)
    return [_failure(each, found, visibility) for each in newest]


def _failure(failure: Failure, found: Observed, visibility: Visibility) -> dict[str, Any]:
    nodes, fleet = failure.nodes, found.fleet
    return {
        "at": failure.at,
        "cause": failure.cause.value,
        "component": failure.component,
        "nodes": [fleet.nodes.names[row] for row in nodes[:_MOST_NODES]],
        "nodes_count": len(nodes),
        "gpu": int(fleet.gpus.index[failure.gpu]) if failure.gpu >= 0 else None,
        "jobs": visibility.shown(failure.jobs),
        "evidence": [
            {
                "kind": sign.kind.value,
                "at": sign.at,
                "text": _text(sign.text, sign.job, visibility),
            }
            for sign in failure.signs[:_MOST_SIGNS]
        ],
        "evidence_count": len(failure.signs),
        "observed": found.exposure.holds(failure),
    }


def _text(text: str, job: str, visibility: Visibility) -> str:
    if job and not visibility.sees(job):
        return "a job of another project ended"
    return visibility.text(text)
