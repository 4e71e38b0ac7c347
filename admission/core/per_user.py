"""Limits on what each user may have of one project at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

__all__ = ["PerUser", "UserLimit"]


@dataclass(frozen=True, kw_only=True)
class UserLimit:
    """The limits of one user in one project. None: none but those of the project and the user."""

    #: held by what runs at once
    gpus: int | None = None
    #: phases that run at once
    running: int | None = None
    pending_jobs: int | None = None
    pending_phases: int | None = None
    submissions_per_s: float | None = None


@dataclass(frozen=True)
class PerUser:
    """The limits of the users of a project: ``each`` has the first, and some their ``own``."""

    each: UserLimit = UserLimit()
    own: Mapping[str, UserLimit] = field(default_factory=dict)

    def of(self, user: str) -> UserLimit:
        """Return the limits of a user: the own ones as far as there are any."""
        own = self.own.get(user)
        if own is None:
            return self.each
        given = {each.name: getattr(own, each.name) for each in fields(own)}
        return replace(self.each, **{k: value for k, value in given.items() if value is not None})
