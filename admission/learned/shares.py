"""The past use of the fleet by projects and users, older use counting less, for their shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from admission.core import sharing
from admission.core.sharing import Shares
from admission.core.snapshot import ProjectShare
from admission.jobs.models import Project
from admission.learned.models import UserUse

__all__ = ["Standing", "decayed", "note", "project_shares", "standings"]

#: Written down so often, s.
_EVERY_S = 30.0
#: What has faded to so little is forgotten, GPU seconds.
_NOTHING_GPU_S = 1.0


def decayed(row: Project | UserUse, now: float, half_life_s: float) -> float:
    """Return the GPU seconds of a row that were used, as they count at ``now`` (Unix s)."""
    ago_s = 0.0 if row.used_at is None else now - row.used_at.timestamp()
    return sharing.decayed(row.used_gpu_s, ago_s, half_life_s)


def project_shares(now: float, half_life_s: float) -> tuple[ProjectShare, ...]:
    """Return all projects, as they are themselves, with what they have used. Two queries."""
    by_user: dict[int, dict[str, float]] = defaultdict(dict)
    for row in UserUse.objects.all():
        by_user[row.project_id][row.user] = decayed(row, now, half_life_s)
    return tuple(
        replace(_share(each, now, half_life_s), used_by_user=by_user[each.pk])
        for each in Project.objects.all()
    )


def _share(row: Project, now: float, half_life_s: float) -> ProjectShare:
    return ProjectShare(
        name=row.name,
        weight=row.weight,
        gpu_quota=row.gpu_quota,
        power_quota_w=row.power_quota_w,
        used_gpu_s=decayed(row, now, half_life_s),
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """The share and quota of a project in force, and the share that it has had, of 1."""

    organization: str
    weight: float
    #: whether the weight is stated by the admission policy, and not by the project itself
    is_stated: bool
    due: float
    #: None: nobody has had anything
    had: float | None
    #: GPUs; None: no limit
    gpu_quota: int | None
    #: with which it lends and borrows what is idle of quotas; empty: with nobody
    cohort: str
    may_borrow: int | None
    may_lend: int | None


def standings(rows: Iterable[Project], now: float, stated: Shares) -> dict[str, Standing]:
    """Return the standing of each project by name; ``rows`` are all that there are."""
    own = {each.name: _share(each, now, stated.half_life_s) for each in rows}
    # A policy may name projects that nobody has made yet.
    found = stated.applied(own.values())
    projects = {name: found[name] for name in own}
    due, total = sharing.due(projects), sum(each.used_gpu_s for each in projects.values())
    return {
        name: Standing(
            organization=each.organization,
            weight=each.weight,
            is_stated=name in stated.projects and stated.projects[name].weight is not None,
            due=due[name],
            had=each.used_gpu_s / total if total else None,
            gpu_quota=each.gpu_quota,
            cohort=each.cohort,
            may_borrow=each.may_borrow,
            may_lend=each.may_lend,
        )
        for name, each in projects.items()
    }


def note(gpus: Mapping[tuple[int, str], float], now: float, half_life_s: float) -> int:
    """Add the present use, by id of the project and user, to the past one; return rows written.

    Two queries, and a few where it is due. What is held counts for the time since it was last
    noted, so it may be called as often as one likes.
    """
    by_project: dict[int, float] = defaultdict(float)
    for (project_id, _), count in gpus.items():
        by_project[project_id] += count
    due = [
        row
        for row in Project.objects.all()
        if _add(row, by_project.get(row.pk, 0.0), now, half_life_s)
    ]
    Project.objects.bulk_update(due, ["used_gpu_s", "used_at"])
    return len(due) + _note_users(gpus, now, half_life_s)


def _note_users(gpus: Mapping[tuple[int, str], float], now: float, half_life_s: float) -> int:
    rows = {(row.project_id, row.user): row for row in UserUse.objects.all()}
    due = [row for key, row in rows.items() if _add(row, gpus.get(key, 0.0), now, half_life_s)]
    faded = [row.pk for row in due if row.used_gpu_s < _NOTHING_GPU_S and not gpus.get(row.key)]
    UserUse.objects.bulk_update(due, ["used_gpu_s", "used_at"])
    UserUse.objects.filter(pk__in=faded).delete()
    at = datetime.fromtimestamp(now, UTC)
    new = [
        UserUse(project_id=project_id, user=user, used_at=at)
        for project_id, user in gpus.keys() - rows.keys()
    ]
    # A project may be gone since it was seen, with all of this.
    known = set(Project.objects.filter(pk__in={row.project_id for row in new}).values_list("pk"))
    UserUse.objects.bulk_create([row for row in new if (row.project_id,) in known])
    return len(due)


def _add(row: Project | UserUse, gpus: float, now: float, half_life_s: float) -> bool:
    """Add what was used since it was last noted; say whether that was long enough ago."""
    since_s = now - row.used_at.timestamp() if row.used_at else 0.0
    # Also of those that hold nothing: what they hold next must not count for the time before.
    if row.used_at is not None and since_s < _EVERY_S:
        return False
    row.used_gpu_s = decayed(row, now, half_life_s) + gpus * since_s
    row.used_at = datetime.fromtimestamp(now, UTC)
    return True
