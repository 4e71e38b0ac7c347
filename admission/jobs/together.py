"""Submit several jobs at once, in one transaction: each costs less than one alone.

Only what is plainly right is taken. Whatever else a submission may be (refused, over a limit, a
repeated one, one that needs other jobs) is left out, and nothing has become of it:
:func:`admission.jobs.submission.submit` says what does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from accounts.models import User
from accounts.roles import Capability
from admission.jobs import catalog, limits, needs
from admission.jobs.saving import NewJob, save
from admission.jobs.submission import OverLimit, Prepared, SpecError, prepare_on, rows_of
from headroom.jobs.spec import JobSpec

__all__ = ["Submission", "submit_all"]


@dataclass(frozen=True)
class Submission:
    """A specification that somebody submits."""

    spec: JobSpec
    user: User
    at: datetime
    idempotency_key: str = ""


def submit_all(given: Sequence[Submission]) -> list[NewJob | None]:
    """Submit jobs; return the rows of each that was taken, and None of each that was left out."""
    taken: list[NewJob | None] = [None] * len(given)
    prepared = _prepared(given)
    while prepared:
        left_out = _insert(prepared)
        if not left_out:
            break
        # Nothing was written: of what is left out nothing is to be counted either.
        prepared = {place: each for place, each in prepared.items() if place not in left_out}
    for place, (_, new) in prepared.items():
        taken[place] = new
    return taken


def _prepared(given: Sequence[Submission]) -> dict[int, tuple[Prepared, NewJob]]:
    """Return, by place, what can be submitted without a further look. One query."""
    plain = {place: each for place, each in enumerate(given) if _is_plain(each)}
    if not plain:
        return {}
    asked = [(each.user, each.spec.project) for each in plain.values()]
    found: dict[int, tuple[Prepared, NewJob]] = {}
    names = set()
    for (place, each), admitted in zip(plain.items(), catalog.for_submissions(asked), strict=True):
        try:
            prepared = prepare_on(admitted, each.spec, each.user, each.at)
        except (SpecError, OverLimit):
            continue
        if prepared.name in names:
            continue
        names.add(prepared.name)
        found[place] = prepared, rows_of(prepared, each.user, each.at, each.idempotency_key)
    return found


def _is_plain(given: Submission) -> bool:
    """Say whether a submission writes the rows of its job alone, whenever it comes."""
    spec = given.spec
    waits = needs.has_any_of(spec) or spec.array is not None or spec.begin_by is not None
    return given.user.can(Capability.SUBMIT_JOBS) and not waits


def _insert(prepared: dict[int, tuple[Prepared, NewJob]]) -> set[int]:
    """Write all jobs down; or nothing, and return the places of those to be left out."""
    places = list(prepared)
    asked = [each.asked for each, _ in prepared.values()]
    with transaction.atomic():
        refused = limits.charge_all(each.holders for each in asked)
        left_out = {at for at, each in enumerate(asked) if not refused.isdisjoint(each.holders)}
        left_out = left_out or limits.check_all(asked)
        if not left_out:
            saved = save([new for _, new in prepared.values()])
            left_out = {at for at, is_new in enumerate(saved) if not is_new}
        if left_out:
            transaction.set_rollback(True)
    return {places[at] for at in left_out}
