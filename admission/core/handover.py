"""Artifacts that phases hand on: whether what one takes is there for it, and where. Pure.

A phase takes an artifact once it is recorded: its machines measured it after their command had
succeeded. It may then run at the sites where the artifact is, whole. One that promotes what it
takes waits until that is wherever copies are wanted, and for the matrices that it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from admission.core.reasons import Reason, ReasonToken
from admission.core.request import Request, Taken
from headroom.jobs.words import in_bytes, in_cells
from policies.scopes import Scope, ScopeKind

__all__ = ["Handover", "Recorded", "placed", "waits_for"]


@dataclass(frozen=True)
class Recorded:
    """An artifact as it was measured where it was made, and what was found at other sites.

    ``found`` has the digest at each site, also at ``site``, where it was made.
    """

    digest: str
    size_bytes: int
    site: str
    found: Mapping[str, str]
    #: sites where copies are wanted
    copies: tuple[str, ...] = ()
    #: of the result of a matrix, how many of its cells ended how
    cells: Mapping[str, int] | None = None

    @property
    def has_passed(self) -> bool:
        """It is the result of a matrix that has passed: some cell has, and none that was run not.

        The verdict of ``lab.matrix.result``.
        """
        cells = self.cells or {}
        bad = sum(cells.get(each, 0) for each in ("failed", "error", "not_measured"))
        return cells.get("passed", 0) > 0 and not bad

    @property
    def lacking(self) -> tuple[str, ...]:
        """The sites where a copy is wanted, and is not or differs."""
        return tuple(sorted(set(self.copies) - self.whole_at))

    @property
    def whole_at(self) -> frozenset[str]:
        """The sites where it is as it was made."""
        return frozenset(site for site, digest in self.found.items() if digest == self.digest)


@dataclass(frozen=True)
class Handover:
    """What is recorded of the artifacts of a job, by phase and name."""

    recorded: Mapping[Taken, Recorded] = field(default_factory=dict)


def placed(request: Request, known: Handover) -> Request:
    """Return a request that stands only where all that it takes is."""
    sites = _sites(request.takes, known)
    return request if sites is None else replace(request, artifact_sites=tuple(sorted(sites)))


def _sites(takes: Iterable[Taken], known: Handover) -> frozenset[str] | None:
    """Return the sites where all of those are that are recorded; None: none is."""
    found = [known.recorded[each].whole_at for each in takes if each in known.recorded]
    return reduce(frozenset.intersection, found) if found else None


def waits_for(request: Request, known: Handover) -> tuple[Reason, ...]:
    """Return why a phase waits for artifacts; empty where all are there for it."""
    found = _not_there(request, known)
    return (*found, *_not_promoted(request, known)) if request.promotes else found


def _not_there(request: Request, known: Handover) -> tuple[Reason, ...]:
    """Return why it waits for what it takes."""
    if not request.takes:
        return ()
    missing = [each for each in request.takes if each not in known.recorded]
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        text = f"waits for {told(missing[0])}: no machine has measured it yet{more}"
        return (_reason(request, len(missing), text, known),)
    sites = _sites(request.takes, known)
    allowed = set(request.sites)
    if sites and (not allowed or sites & allowed):
        return ()
    # No site has all of them: the first that none of its own has, else the first of all.
    apart = [
        each for each in request.takes if allowed and not known.recorded[each].whole_at & allowed
    ]
    first = (apart or list(request.takes))[0]
    at = ", ".join(sorted(known.recorded[first].whole_at)) or "no site"
    where = f"it may run at {', '.join(request.sites)}" if apart else "others are elsewhere"
    text = f"waits for {told(first)}: it is at {at}, and {where}"
    return (_reason(request, max(len(apart), 1), text, known),)


def _not_promoted(request: Request, known: Handover) -> Iterator[Reason]:
    """Yield why a phase may not promote what it takes: copies that lag, matrices."""
    made = {each: known.recorded[each] for each in request.takes if each in known.recorded}
    if any(each.lacking for each in made.values()):
        yield _lagging(request, made)
    for each in request.matrices:
        result = known.recorded.get(each)
        if result is None:
            text = f"promotes only with {told(each)}: no machine has measured it yet"
            yield Reason(
                ReasonToken.ARTIFACT_PENDING, 1.0, 0.0, "artifacts", _scope(request), text,
                {"artifact": "/".join(each)},
            )  # fmt: skip
        elif not result.has_passed:
            yield _failed(request, each, result.cells or {})


def _lagging(request: Request, made: Mapping[Taken, Recorded]) -> Reason:
    """Return the reason for copies that lag, in places where artifacts have to be."""
    lacking = [(taken, site) for taken, each in made.items() for site in each.lacking]
    need = sum(len({each.site, *each.copies}) for each in made.values())
    behind = sum(made[taken].size_bytes for taken, _ in lacking)
    (taken, site), *others = lacking
    state = "differs" if site in made[taken].found else "is missing"
    more = f", and {len(others)} more" if others else ""
    text = (
        f"promotes only what has its copies: that of {told(taken)} at {site} {state}{more};"
        f" {need - len(lacking)} of {need} places have theirs, {in_bytes(behind)} lag"
    )
    copies = [
        {
            "artifact": "/".join(taken), "site": site, "wanted": made[taken].digest,
            "found": made[taken].found.get(site, ""), "size_bytes": made[taken].size_bytes,
        }
        for taken, site in lacking
    ]  # fmt: skip
    return Reason(
        ReasonToken.ARTIFACT_PENDING, float(need), float(need - len(lacking)), "places",
        _scope(request), text, {"copies": copies, "bytes_behind": behind},
    )  # fmt: skip


def _failed(request: Request, taken: Taken, cells: Mapping[str, int]) -> Reason:
    """Return the reason for a matrix that has not passed. What is recorded never changes."""
    run = sum(count for verdict, count in cells.items() if verdict != "not_run")
    said = in_cells(cells) if cells else "it is not the result of a matrix"
    text = f"can never begin: promotes only what has passed, and of {told(taken)} {said}; cancel it"
    return Reason(
        ReasonToken.DEPENDENCY_NEVER_MET, float(max(run, 1)), float(cells.get("passed", 0)),
        "cells", _scope(request), text, {"artifact": "/".join(taken), "cells": dict(cells)},
    )  # fmt: skip


def _scope(request: Request) -> Scope:
    return Scope(ScopeKind.JOB, request.job)


def told(taken: Taken) -> str:
    """Return an artifact in words."""
    phase, output = taken
    return f"artifact {output} of phase {phase}"


def _reason(request: Request, short: int, text: str, known: Handover) -> Reason:
    need = len(request.takes)
    evidence = {
        "artifacts": [
            {"artifact": "/".join(each), "sites": sorted(known.recorded[each].whole_at)}
            if each in known.recorded
            else {"artifact": "/".join(each), "sites": []}
            for each in request.takes
        ]
    }
    return Reason(
        ReasonToken.ARTIFACT_PENDING, float(need), float(need - short), "artifacts",
        _scope(request), text, evidence,
    )  # fmt: skip
