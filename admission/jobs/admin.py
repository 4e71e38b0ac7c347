"""Which groups of the identity provider make members of which projects."""

from __future__ import annotations

from django.contrib import admin

from accounts.noted import NotedAdmin
from admission.jobs.models import ProjectGroup


@admin.register(ProjectGroup)
class ProjectGroupAdmin(NotedAdmin):
    """It counts from each person's next sign-on."""

    noted = "project_group"
    list_display = ["group", "project"]
    list_select_related = ["project"]
    search_fields = ["group", "project__name"]
