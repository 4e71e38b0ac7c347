"""Admin pages that write an audit entry with each change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import transaction

from accounts import audit
from accounts.models import User

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.forms import ModelForm
    from django.http import HttpRequest

    # Generic for the type checker alone.
    BaseAdmin = admin.ModelAdmin[Any]
else:
    BaseAdmin = admin.ModelAdmin

__all__ = ["NotedAdmin", "actor_of"]


class NotedAdmin(BaseAdmin):
    """Notes the state before and after, in the transaction of the write."""

    #: What the actions in the log begin with; empty: the kind of row, of an app.
    noted = ""

    def save_model(
        self, request: HttpRequest, obj: Model, form: ModelForm[Any], change: bool
    ) -> None:
        with transaction.atomic():
            before = audit.stored(obj)
            super().save_model(request, obj, form, change)
            told = audit.changes(before, audit.state(obj))
            self._note(request, "change" if change else "create", obj, told)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        with transaction.atomic():
            self._note(request, "delete", obj, audit.changes(audit.state(obj), None))
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        with transaction.atomic():
            for obj in queryset:
                self._note(request, "delete", obj, audit.changes(audit.state(obj), None))
            super().delete_queryset(request, queryset)

    def _note(self, request: HttpRequest, what: str, obj: Model, told: dict[str, Any]) -> None:
        kind = str(obj._meta.verbose_name).lower().replace(" ", "_")
        noted = self.noted or f"{obj._meta.app_label}.{kind}"
        audit.record(actor_of(request), f"{noted}.{what}", str(obj), **told)


def actor_of(request: HttpRequest) -> User:
    """Return the user of the request; the admin site lets nobody in who is not logged in."""
    if not isinstance(request.user, User):
        raise TypeError("the admin site lets nobody in who is not logged in")
    return request.user
