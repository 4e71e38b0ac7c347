"""Roles and their capabilities. Checked on the server, by capability and never by role name."""

from __future__ import annotations

import enum

from django.db import models


class Role(models.TextChoices):
    """The roles of users."""

    VIEWER = "viewer", "Viewer"
    ML_USER = "ml_user", "ML user"
    RESPONDER = "responder", "Responder"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class Capability(enum.Enum):
    """A permission that roles and tokens hold."""

    VIEW_FLEET = "view_fleet"
    SEE_ALL_JOBS = "see_all_jobs"
    SUBMIT_JOBS = "submit_jobs"
    RUN_PLAYBOOKS = "run_playbooks"
    EDIT_POLICIES = "edit_policies"
    EDIT_FLEET = "edit_fleet"
    MANAGE_AGENTS = "manage_agents"
    MANAGE_USERS = "manage_users"
    #: in jobs of others: whoever has submitted a job may in that
    OPEN_SHELLS = "open_shells"

    @property
    def phrase(self) -> str:
        """The capability in words, after "may"."""
        return self.value.replace("_", " ")


_VIEWER = frozenset({Capability.VIEW_FLEET, Capability.SEE_ALL_JOBS})
_RESPONDER = _VIEWER | {Capability.RUN_PLAYBOOKS}
_OPERATOR = _RESPONDER | {
    Capability.SUBMIT_JOBS,
    Capability.EDIT_POLICIES,
    Capability.EDIT_FLEET,
    Capability.MANAGE_AGENTS,
}

CAPABILITIES: dict[str, frozenset[Capability]] = {
    Role.VIEWER: _VIEWER,
    # Without SEE_ALL_JOBS: those of the own projects. See accounts.visibility.
    Role.ML_USER: frozenset({Capability.VIEW_FLEET, Capability.SUBMIT_JOBS}),
    Role.RESPONDER: _RESPONDER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Capability),
}

#: For the admin site: what it takes to view, and to change, the models of an app.
MODEL_CAPABILITIES: dict[str, tuple[Capability, Capability]] = {
    "accounts": (Capability.MANAGE_USERS, Capability.MANAGE_USERS),
    "fleet": (Capability.VIEW_FLEET, Capability.EDIT_FLEET),
    "telemetry": (Capability.VIEW_FLEET, Capability.MANAGE_AGENTS),
    "policies_headroom": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "policies_rules": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "policies_restrictions": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "policies_incidents": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "policies_playbooks": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "policies_rollouts": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_jobs": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_bookings": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_executors": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_schedulers": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_directives": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_slos": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_curtailments": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_policy": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_goodput": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_energy": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_baselines": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_tracing": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
    "admission_learned": (Capability.VIEW_FLEET, Capability.EDIT_POLICIES),
}
