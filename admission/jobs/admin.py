"""Which groups of the identity provider make members of which projects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from accounts import audit
from accounts.logins import user_of
from admission.jobs.models import ProjectGroup

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.forms import ModelForm
    from django.http import HttpRequest

    GroupModelAdmin = admin.ModelAdmin[ProjectGroup]
else:
    GroupModelAdmin = admin.ModelAdmin


@admin.register(ProjectGroup)
class ProjectGroupAdmin(GroupModelAdmin):
    """It counts from each person's next sign-on."""

    list_display = ["group", "project"]
    list_select_related = ["project"]
    search_fields = ["group", "project__name"]

    def save_model(
        self, request: HttpRequest, obj: ProjectGroup, form: ModelForm[Any], change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        self._note(request, "change" if change else "create", obj)

    def delete_model(self, request: HttpRequest, obj: ProjectGroup) -> None:
        self._note(request, "delete", obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ProjectGroup]) -> None:
        for obj in queryset:
            self._note(request, "delete", obj)
        super().delete_queryset(request, queryset)

    def _note(self, request: HttpRequest, what: str, obj: ProjectGroup) -> None:
        audit.record(user_of(request), f"project_group.{what}", str(obj))
