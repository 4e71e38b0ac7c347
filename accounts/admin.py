"""Users, tokens and the audit log on the admin site. For admins: others have no permission."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from accounts import actions, audit, users
from accounts.models import ApiToken, AuditEntry, GroupRole, Identity, User
from accounts.noted import NotedAdmin, actor_of
from accounts.second_factor import actions as second_factor
from accounts.sessions import actions as sessions
from accounts.sessions.agents import in_words

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.forms import ModelForm
    from django.http import HttpRequest

    # Generic for the type checker alone.
    BaseUserAdmin = DjangoUserAdmin[User]
    BaseUserForm = UserChangeForm[User]
    TokenModelAdmin = admin.ModelAdmin[ApiToken]
    AuditModelAdmin = admin.ModelAdmin[AuditEntry]
else:
    BaseUserForm = UserChangeForm
    BaseUserAdmin = DjangoUserAdmin
    TokenModelAdmin = AuditModelAdmin = admin.ModelAdmin

# Roles take their place.
admin.site.unregister(Group)


class UserForm(BaseUserForm):
    """A user that is changed, under the rules of the pages."""

    #: who changes it; a class is made for each request
    actor: User

    def clean(self) -> dict[str, Any]:
        """Refuse what nobody may do to this user. It locks until the request is over."""
        given = super().clean() or {}
        rights = {name: given[name] for name in ("role", "is_active") if name in given}
        users.check_change(self.actor, User.objects.get(pk=self.instance.pk), **rights)
        return given


@admin.register(User)
class UserAdmin(BaseUserAdmin):
    form = UserForm
    list_display = ["username", "role", "email", "is_active", "last_login"]
    list_filter = ["role", "is_active"]
    search_fields = ["username", "email", "first_name", "last_name"]
    ordering = ["username"]
    readonly_fields = ["last_login", "date_joined", "live_sessions"]
    actions = ["end_sessions", "reset_second_factor"]
    filter_horizontal = ()
    fieldsets = [
        (None, {"fields": ["username", "password", "role", "is_active"]}),
        ("Person", {"fields": ["first_name", "last_name", "email"]}),
        ("Dates", {"fields": ["last_login", "date_joined", "live_sessions"]}),
    ]
    add_fieldsets = [
        (None, {"fields": ["username", "usable_password", "password1", "password2", "role"]})
    ]

    def get_form(
        self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[User]]:
        """Return the form, which knows who sends it."""
        made = super().get_form(request, obj, change=change, **kwargs)
        made.actor = actor_of(request)  # type: ignore[attr-defined]
        return made

    def save_model(
        self, request: HttpRequest, obj: User, form: ModelForm[User], change: bool
    ) -> None:
        """Save, and note the state before and after."""
        with transaction.atomic():
            before = audit.stored(obj)
            super().save_model(request, obj, form, change)
            audit.record(
                actor_of(request),
                "user.change" if change else "user.create",
                obj.username,
                **audit.changes(before, audit.state(obj)),
                role=obj.role,
                active=obj.is_active,
            )
            if change and {"role", "is_active"} & set(form.changed_data):
                sessions.end_all(actor_of(request), obj, why="user.change")

    def log_change(self, request: HttpRequest, obj: User, message: Any) -> Any:
        """Note passwords set for others, too, which do not pass ``save_model``."""
        if "password" in str(message).lower():
            audit.record(actor_of(request), "password.set", obj.username)
            own = request.session.session_key if obj == request.user else None
            sessions.end_all(actor_of(request), obj, but=own, why="password")
        return super().log_change(request, obj, message)

    @admin.display(description="Sessions")
    def live_sessions(self, obj: User) -> str:
        """Return the live sessions of a user, a line each."""
        live = obj.sessions.live(timezone.now()).order_by("-last_seen_at")
        return "\n".join(
            f"{in_words(each.agent)}, {each.address or 'no address'}, "
            f"since {each.started_at:%Y-%m-%d %H:%M}, last used {each.last_seen_at:%Y-%m-%d %H:%M}"
            for each in live
        )

    @admin.action(description="End all sessions of selected users", permissions=["change"])
    def end_sessions(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Log people out everywhere, at once."""
        ended = sum(sessions.end_all(actor_of(request), user, why="admin") for user in queryset)
        self.message_user(request, f"{ended} users are logged out everywhere.", messages.SUCCESS)

    @admin.action(description="Reset the second factor of selected users", permissions=["change"])
    def reset_second_factor(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        """Take a lost second factor from others. One's own takes a code, on one's account page."""
        others = queryset.exclude(pk=actor_of(request).pk)
        count = sum(second_factor.reset(actor_of(request), user) for user in others)
        self.message_user(request, f"{count} second factors are reset.", messages.SUCCESS)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        with transaction.atomic():
            _keep_an_admin([obj])
            _note_deletion(request, obj)
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        with transaction.atomic():
            _keep_an_admin(queryset)
            for user in queryset:
                _note_deletion(request, user)
            super().delete_queryset(request, queryset)


@admin.register(ApiToken)
class ApiTokenAdmin(TokenModelAdmin):
    """Everybody's tokens. They are made by their users, who alone see the secret."""

    list_display = ["name", "user", "hint", "expires_at", "last_used_at", "revoked_at"]
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
        """Revoke tokens, and show how many."""
        revoked = sum(
            actions.revoke_token(actor_of(request), token)
            for token in queryset.select_related("user")
        )
        self.message_user(request, f"{revoked} tokens are revoked.", messages.SUCCESS)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Let the action ask for it: the page itself is read-only."""
        return request.user.has_perm("accounts.change_apitoken")


@admin.register(GroupRole)
class GroupRoleAdmin(NotedAdmin):
    """The roles of groups of the identity provider. They count from each person's next sign-on."""

    noted = "group_role"
    list_display = ["group", "role"]
    list_filter = ["role"]
    search_fields = ["group"]


@admin.register(Identity)
class IdentityAdmin(NotedAdmin):
    """Identities at the provider. To add one is to let that person sign on as this user."""

    noted = "identity"
    list_display = ["user", "subject", "issuer", "created_at", "last_used_at"]
    list_select_related = ["user"]
    search_fields = ["user__username", "subject"]
    autocomplete_fields = ["user"]


@admin.register(AuditEntry)
class AuditEntryAdmin(AuditModelAdmin):
    """Entries of the audit log, read-only. A trigger of the database refuses writes, too."""

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


def _keep_an_admin(leaving: Iterable[User]) -> None:
    """Refuse to delete the last active admin, before anything is written."""
    try:
        users.keep_an_admin([each.pk for each in leaving], "role")
    except ValidationError as error:
        raise PermissionDenied(" ".join(error.messages)) from error


def _note_deletion(request: HttpRequest, user: User) -> None:
    told = audit.changes(audit.state(user), None)
    audit.record(actor_of(request), "user.delete", user.username, **told)
