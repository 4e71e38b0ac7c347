"""Who may have whom give way, as the admission policy states it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["BUDGET_S", "PreemptionPolicy", "disrupted"]

#: The time that budgets of disruptions are for, s.
BUDGET_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class PreemptionPolicy:
    """Whom a job may have give way, and how often a project's jobs may be asked to.

    Jobs ask by their class (``preempts``), where they have as much more priority as the tuning
    says. Or they ask back what is due to their project, from those that hold more than is due to
    them: of quotas, what others of the cohort borrow; of shares, what others hold beyond theirs.
    """

    #: one that has run for less is left alone, s
    least_runtime_s: float = 300.0
    #: jobs of one project that are asked within an hour at most
    disruptions_per_h: int = 60
    #: the same by project, where it is another number
    disruptions_of: Mapping[str, int] = field(default_factory=dict)
    #: by class that asks, the classes whose jobs it may ask; one that is missing may ask all
    stops: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: what is due by quota is asked back by a job that has waited for so long, s; None: never
    reclaim_quota_after_s: float | None = 300.0
    #: what is due by share is asked back by a job that has waited for so long, s; None: never
    reclaim_share_after_s: float | None = 3600.0

    def may_stop(self, asking: str, asked: str) -> bool:
        """Say whether jobs of one class may have those of another give way."""
        return asking not in self.stops or asked in self.stops[asking]

    def most_of(self, project: str) -> int:
        """Return how many jobs of a project may be asked within an hour."""
        return self.disruptions_of.get(project, self.disruptions_per_h)


def disrupted(asked: Iterable[tuple[float, str]], now: float) -> dict[str, int]:
    """Return how many jobs of each project were asked to give way within the hour.

    ``asked``: when, Unix s, and of which project each was.
    """
    return dict(Counter(project for at, project in asked if now - BUDGET_S < at <= now))
