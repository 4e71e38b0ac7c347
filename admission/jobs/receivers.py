"""Membership of projects that follows the groups of an identity provider."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from accounts import audit
from accounts.models import User
from accounts.sign_on.signals import groups_known
from admission.jobs.models import GroupMembership, Project


@receiver(groups_known)
def follow_groups(user: User, groups: frozenset[str], **_: Any) -> None:
    """Give ``user`` the projects of these groups, and take back those of groups left.

    Who was made a member by hand stays one.
    """
    wanted = set(Project.objects.filter(groups__group__in=groups).distinct())
    held = {each.project: each for each in user.group_memberships.select_related("project")}
    before = {"projects": sorted(map(str, user.projects.all()))}
    added = wanted - set(user.projects.all())
    for project in added:
        project.members.add(user)
        # There may be one already, of somebody whom an operator took out of the project.
        GroupMembership.objects.get_or_create(project=project, user=user)
    removed = held.keys() - wanted
    for project in removed:
        project.members.remove(user)
        held[project].delete()
    if added or removed:
        told = {"added": sorted(map(str, added)), "removed": sorted(map(str, removed))}
        changed = audit.changes(before, {"projects": sorted(map(str, user.projects.all()))})
        audit.record(audit.SYSTEM, "project.groups", user.username, **told, **changed)
