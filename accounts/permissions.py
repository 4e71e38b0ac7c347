"""Capabilities that the REST API requires of a role."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rest_framework.permissions import SAFE_METHODS, BasePermission

from accounts.roles import Capability

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView


class RequiresCapability(BasePermission):
    """One capability to read and one to write. Subclass it to name them."""

    reading: ClassVar[Capability]
    writing: ClassVar[Capability]
    message: str

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Say whether the user's role holds the capability that the method needs."""
        capability = self.reading if request.method in SAFE_METHODS else self.writing
        if not request.user.is_authenticated:
            return False
        self.message = request.user.why_not(capability)
        return request.user.can(capability)


class ViewsFleetOrEdits(RequiresCapability):
    reading = Capability.VIEW_FLEET
    writing = Capability.EDIT_FLEET


class ViewsFleetOrManagesAgents(RequiresCapability):
    reading = Capability.VIEW_FLEET
    writing = Capability.MANAGE_AGENTS


class ViewsFleet(RequiresCapability):
    """For views whose POST changes nothing, such as a plan."""

    reading = writing = Capability.VIEW_FLEET


class ViewsFleetOrEditsPolicies(RequiresCapability):
    reading = Capability.VIEW_FLEET
    writing = Capability.EDIT_POLICIES


class ViewsFleetOrRunsPlaybooks(RequiresCapability):
    """For the actions of somebody on call: acknowledge, approve, refuse, lift."""

    reading = Capability.VIEW_FLEET
    writing = Capability.RUN_PLAYBOOKS


class ViewsFleetOrSubmitsJobs(RequiresCapability):
    """For jobs. The project of the user decides, too."""

    reading = Capability.VIEW_FLEET
    writing = Capability.SUBMIT_JOBS
