"""Grants: which scheduling classes a project may use. The one place that says so.

Submission, amendments, shadows and what is offered to a job that waits all ask here. The grants in
force stand in the admission policy, whose versions somebody else than their author lets count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Grants"]


class _Class(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def preempts(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Grants:
    """Which project may use which scheduling class."""

    #: classes that every project may use; None: all whose jobs have nobody else's give way
    open_classes: frozenset[str] | None = None
    #: by project, classes that it may use beside those
    granted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: by project, all that it may use, whatever is open; a project that is missing is not confined
    confined: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allows(self, project: str, job_class: _Class) -> bool:
        """Say whether the jobs of ``project`` may be of a class."""
        name = job_class.name
        if name in self.granted.get(project, ()):
            return True
        if project in self.confined:
            return name in self.confined[project]
        return self.is_open(job_class)

    def is_open(self, job_class: _Class) -> bool:
        """Say whether every project may use a class that is not confined to others."""
        if self.open_classes is None:
            return not job_class.preempts
        return job_class.name in self.open_classes

    def allowed(self, project: str, classes: Iterable[_Class]) -> frozenset[str]:
        """Return the names of those of ``classes`` that ``project`` may use."""
        return frozenset(each.name for each in classes if self.allows(project, each))
