"""A firing of a rule on a scope, as it is handed to restrictions, incidents and playbooks."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime

from policies.scopes import Scope

#: Runs of playbooks that are started at once for one cause (on the server an incident, in a world a
#: rule): what fires everywhere is for a person.
MOST_RUNS = 20


class Severity(enum.StrEnum):
    """The severity of a firing: how soon a person has to look."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True)
class Firing:
    """A rule whose condition has held for its time on one scope.

    ``values`` are the numbers that its condition looked at, by field, when it fired. ``evidence``
    says what else a person wants to see.
    """

    rule: str
    version: int
    scope: Scope
    severity: Severity
    #: since when the condition holds
    since: datetime
    #: when it was found to have held for long enough
    at: datetime
    summary: str
    values: dict[str, float | str | bool] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    #: what to run; empty for nothing
    playbook: str = ""

    @property
    def key(self) -> str:
        """Rule and scope, without the version: it identifies the firing within incidents."""
        return f"{self.rule} {self.scope}"
