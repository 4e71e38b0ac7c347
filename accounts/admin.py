"""Users, tokens and the audit log on the admin site. For admins: others have no permission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group

from accounts import actions, audit
from accounts.models import ApiToken, AuditEntry, User

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.forms import ModelForm
    from django.http import HttpRequest

    # Generic for the type checker alone.
    BaseUserAdmin = DjangoUserAdmin[User]
    TokenModelAdmin = admin.ModelAdmin[ApiToken]
    AuditModelAdmin = admin.ModelAdmin[AuditEntry]
else:
    BaseUserAdmin = DjangoUserAdmin
    TokenModelAdmin = AuditModelAdmin = admin.ModelAdmin

# Roles take their place.
admin.site.unregister(Group)


@admin.register(User)
class UserAdmin(BaseUserAdmin):
    list_display = ["username", "role", "email", "is_active", "last_login"]
    list_filter = ["role", "is_active"]
    search_fields = ["username", "email", "first_name", "last_name"]
    ordering = ["username"]
    readonly_fields = ["last_login", "date_joined"]
    filter_horizontal = ()
    fieldsets = [
        (None, {"fields": ["username", "password", "role", "is_active"]}),
        ("Person", {"fields": ["first_name", "last_name", "email"]}),
        ("Dates", {"fields": ["last_login", "date_joined"]}),
    ]
    add_fieldsets = [
        (None, {"fields": ["username", "usable_password", "password1", "password2", "role"]})
    ]

    def save_model(
        self, request: HttpRequest, obj: User, form: ModelForm[User], change: bool
    ) -> None:
        """Save, and note which fields changed; never their values, which may be secret."""
        super().save_model(request, obj, form, change)
        audit.record(
            _actor(request),
            "user.change" if change else "user.create",
            obj.username,
            fields=[name for name in form.changed_data if "password" not in name],
            role=obj.role,
            active=obj.is_active,
        )

    def log_change(self, request: HttpRequest, obj: User, message: Any) -> Any:
        """Note a password set for somebody else too, which does not pass ``save_model``."""
        if "password" in str(message).lower():
            audit.record(_actor(request), "password.set", obj.username)
        return super().log_change(request, obj, message)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        audit.record(_actor(request), "user.delete", obj.username)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        for user in queryset:
            audit.record(_actor(request), "user.delete", user.username)
        super().delete_queryset(request, queryset)


@admin.register(ApiToken)
class ApiTokenAdmin(TokenModelAdmin):
    """Everybody's tokens. They are made by their users, who alone see the secret."""

    list_display = ["name", "user", "hint", "created_at", "revoked_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["user"]
    search_fields = ["name", "user__username", "hint"]
    actions = ["revoke"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ApiToken | None = None) -> bool:
        return False

    @admin.action(description="Revoke selected tokens", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke tokens, say how many."""
        revoked = sum(
            actions.revoke_token(_actor(request), token)
            for token in queryset.select_related("user")
        )
        self.message_user(request, f"{revoked} tokens are revoked.", messages.SUCCESS)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Asked for by the action: the page itself is read-only."""
        return request.user.has_perm("accounts.change_apitoken")


@admin.register(AuditEntry)
class AuditEntryAdmin(AuditModelAdmin):
    """Read-only. Beneath it a trigger refuses the same."""

    list_display = ["at", "actor", "action", "target", "detail"]
    list_filter = ["action"]
    search_fields = ["actor", "action", "target"]
    date_hierarchy = "at"
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: AuditEntry | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: AuditEntry | None = None) -> bool:
        return False


def _actor(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise TypeError("the admin site lets nobody in who is not logged in")
    return request.user
