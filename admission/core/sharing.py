"""Shares of the fleet as the admission policy states them, and what was used of it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from admission.core.per_user import PerUser
from admission.core.snapshot import ProjectShare

__all__ = ["HALF_LIFE_S", "PastUse", "Shares", "Stated", "decayed", "due"]

#: What was used so long ago counts half, where no policy says otherwise, s.
HALF_LIFE_S = 7 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a policy states of a project's share and quota.

    None: as the project itself has it; of what it may borrow and lend: all that there is.
    """

    #: empty: none; it stands beside the organizations
    organization: str = ""
    weight: float | None = None
    #: by user; one that is missing has weight 1
    users: Mapping[str, float] = field(default_factory=dict)
    gpu_quota: int | None = None
    #: with which it lends and borrows what is idle of GPU quotas; empty: with nobody
    cohort: str = ""
    may_borrow: int | None = None
    may_lend: int | None = None
    #: what each of its users may have at once
    per_user: PerUser = field(default_factory=PerUser)


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The weights of organizations, of projects in them, and of users in projects."""

    half_life_s: float = HALF_LIFE_S
    #: weights by name; one that is missing has weight 1
    organizations: Mapping[str, float] = field(default_factory=dict)
    #: by name
    projects: Mapping[str, Stated] = field(default_factory=dict)

    def applied(self, projects: Iterable[ProjectShare]) -> dict[str, ProjectShare]:
        """Return projects by name, with what is stated of them."""
        found = {each.name: self._applied(each) for each in projects}
        for name in self.projects.keys() - found.keys():
            found[name] = self._applied(ProjectShare(name))
        return found

    def _applied(self, project: ProjectShare) -> ProjectShare:
        stated = self.projects.get(project.name)
        if stated is None:
            return project
        return replace(
            project,
            weight=project.weight if stated.weight is None else stated.weight,
            organization=stated.organization,
            organization_weight=self.organizations.get(stated.organization, 1.0),
            user_weights=stated.users,
            gpu_quota=project.gpu_quota if stated.gpu_quota is None else stated.gpu_quota,
            cohort=stated.cohort,
            may_borrow=stated.may_borrow,
            may_lend=stated.may_lend,
            per_user=stated.per_user,
        )


def due(projects: Mapping[str, ProjectShare]) -> dict[str, float]:
    """Return the share of the fleet that is due to each project while all want it, of 1."""
    tops: dict[tuple[str, str], float] = {}
    within: dict[tuple[str, str], float] = defaultdict(float)
    for each in projects.values():
        top = _top(each)
        tops[top] = each.organization_weight if each.organization else each.weight
        within[top] += each.weight
    total = sum(tops.values())
    return {
        name: tops[_top(each)] / total * each.weight / within[_top(each)]
        for name, each in projects.items()
    }


def _top(project: ProjectShare) -> tuple[str, str]:
    """Return what stands at the top of the tree for a project: its organization, or itself."""
    return (project.organization, "") if project.organization else ("", project.name)


def decayed(used_gpu_s: float, ago_s: float, half_life_s: float) -> float:
    """Return how much of a use counts after so long a time, GPU seconds."""
    return float(used_gpu_s * 0.5 ** (max(ago_s, 0.0) / half_life_s))


@dataclass
class _Used:
    """What one user has used for one project until ``at`` (Unix s), and holds since then."""

    at: float
    used_gpu_s: float = 0.0
    gpus: int = 0

    def until(self, now: float, half_life_s: float) -> float:
        since_s = now - self.at
        return decayed(self.used_gpu_s, since_s, half_life_s) + self.gpus * since_s


class PastUse:
    """What projects and users have used, for worlds that have no database to keep it in."""

    def __init__(self, half_life_s: float = HALF_LIFE_S) -> None:
        self._half_life_s = half_life_s
        self._used: dict[tuple[str, str], _Used] = {}

    def change(self, project: str, user: str, gpus: int, now: float) -> None:
        """Note that a user holds so many GPUs more from ``now`` (Unix s) on; below 0: fewer."""
        used = self._used.setdefault((project, user), _Used(now))
        used.used_gpu_s, used.at = used.until(now, self._half_life_s), now
        used.gpus += gpus

    def of(self, projects: Mapping[str, ProjectShare], now: float) -> dict[str, ProjectShare]:
        """Return projects with what they have used, also those that ``projects`` lacks."""
        by_project = defaultdict[str, dict[str, float]](dict)
        for (project, user), used in self._used.items():
            by_project[project][user] = used.until(now, self._half_life_s)
        found = dict(projects)
        for name, by_user in by_project.items():
            share = found.get(name) or ProjectShare(name)
            total = sum(by_user.values())
            found[name] = replace(share, used_gpu_s=total, used_by_user=by_user)
        return found
