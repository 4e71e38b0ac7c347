"""What is due to each project of the fleet now, and who holds more than is due to them. Pure.

Of quotas, to a project of a cohort: its quota. What others of the cohort hold beyond theirs is
borrowed. Of shares, to every other project: its share of the GPUs that jobs may have, by weight, of
those projects that have something that runs or could.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.core.request import Request
from admission.core.sharing import due
from admission.core.snapshot import ProjectShare, Running

__all__ = ["Claim", "Ground", "Holdings"]


class Ground(enum.Enum):
    """Why a job may have others give way."""

    CLASS = "which counts for more"
    QUOTA = "whose project asks back of its quota what others borrow"
    SHARE = "whose project asks back what is due to it by its share"


@dataclass(frozen=True)
class Claim:
    """What a project asks back for one job: it would hold ``gpus`` then, of ``due_gpus``."""

    ground: Ground
    project: str
    gpus: float
    due_gpus: float

    @property
    def leaves(self) -> float:
        """What is to be left to whoever is asked, of what is due to them, where that can be."""
        return 1.0 if self.ground is Ground.QUOTA else self.gpus / self.due_gpus


def held_by(running: Running) -> float:
    """Return the GPUs that a job holds, slices counted by their shares."""
    return running.request.counted(len(running.placement.gpus))


class Holdings:
    """The GPUs that projects hold, and those that are due to them."""

    def __init__(
        self,
        projects: Mapping[str, ProjectShare],
        running: Iterable[Running],
        waiting: Iterable[Request],
        *,
        free_gpus: float,
    ) -> None:
        self._projects = projects
        self.held: defaultdict[str, float] = defaultdict(float)
        total = free_gpus
        for each in running:
            gpus = held_by(each)
            total += gpus
            # What ends is nobody's any more.
            self.held[each.request.project] += 0.0 if each.is_leaving else gpus
        names = self.held.keys() | {each.project for each in waiting}
        shares = due({name: self._of(name) for name in names})
        self._due_gpus = {name: share * total for name, share in shares.items()}

    def _of(self, name: str) -> ProjectShare:
        return self._projects.get(name) or ProjectShare(name)

    def add(self, project: str, gpus: float) -> None:
        """Note that a project holds so many GPUs more; below 0: fewer."""
        self.held[project] += gpus

    def claim(self, request: Request) -> Claim | None:
        """Return what a job may ask back for its project; None: nothing is due to it."""
        project = self._of(request.project)
        gpus = self.held[project.name] + request.counted(request.min_gpus)
        ground, due_gpus = Ground.SHARE, self._due_gpus.get(project.name, 0.0)
        if project.cohort and project.gpu_quota is not None:
            ground, due_gpus = Ground.QUOTA, float(project.gpu_quota)
        return Claim(ground, project.name, gpus, due_gpus) if gpus <= due_gpus else None

    def givers(self, claim: Claim, running: Sequence[Running]) -> tuple[list[int], list[int]]:
        """Return places in ``running`` of those that hold more than is due to their projects.

        As many as may be asked together. First those after which their projects still have what is
        due to them, or by shares as much of it as the claimant then; then those that leave less,
        such as a gang that holds all. Nobody asks that back: before, their projects held more.
        """
        held, found, later, last = self.held.copy(), list[int](), list[int](), list[int]()
        # Who may not be asked at first, when most is held, may not be later.
        some = {name for name, gpus in self.held.items() if self._may_ask(claim, name, gpus)}
        for place, each in enumerate(running):
            name = each.request.project
            if name not in some or not self._may_ask(claim, name, held[name]):
                continue
            gpus = held_by(each)
            if self._left_with(name, held[name] - gpus) >= claim.leaves:
                held[name] -= gpus
                found.append(place)
            else:
                later.append(place)
        for place in later:
            name = running[place].request.project
            if self._may_ask(claim, name, held[name]):
                held[name] -= held_by(running[place])
                last.append(place)
        return found, last

    def _may_ask(self, claim: Claim, name: str, held: float) -> bool:
        """Say whether a project holds more than is due to it, so that it may be asked for some."""
        project, claimant = self._of(name), self._of(claim.project)
        if project.cohort and project.gpu_quota is not None:
            # A quota is a promise: what is within it is asked back by nobody.
            if held <= project.gpu_quota:
                return False
            if claim.ground is Ground.QUOTA:
                return project.cohort == claimant.cohort
        elif claim.ground is Ground.QUOTA:
            return False
        due_gpus = self._due_gpus.get(name, 0.0)
        return held > due_gpus and held * claim.due_gpus > claim.gpus * due_gpus

    def _left_with(self, name: str, held: float) -> float:
        project = self._of(name)
        has_quota = bool(project.cohort) and project.gpu_quota is not None
        due_gpus = float(project.gpu_quota or 0) if has_quota else self._due_gpus.get(name, 0.0)
        return held / due_gpus if due_gpus else float(held > 0)
